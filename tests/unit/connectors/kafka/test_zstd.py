"""Batches that are packed with contexts that are kept are those of everybody else, and theirs are read."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from textwrap import dedent

import aiokafka.codec
import pytest
import zstandard
from aiokafka.errors import CorruptRecordException
from hypothesis import given
from hypothesis import strategies as st

from connectors.kafka.zstd import LEVEL, QUICK, packed, unpacked

batches = st.binary(max_size=200) | st.builds(bytes.__mul__, st.binary(max_size=20), st.integers(0, 20_000))


def in_pieces(batch: bytes) -> bytes:
    """Return a frame that does not say how long its content is, as producers in Java write it."""
    compressor = zstandard.ZstdCompressor().compressobj()
    frame = compressor.compress(batch) + compressor.flush()
    if batch:
        assert zstandard.get_frame_parameters(frame).content_size == zstandard.CONTENTSIZE_UNKNOWN
    return frame


@given(batches, st.sampled_from([LEVEL, QUICK]))
def test_aiokafka_and_this_read_each_other(batch: bytes, level: int) -> None:
    assert aiokafka.codec.zstd_decode(packed(batch, level)) == batch
    assert unpacked(aiokafka.codec.zstd_encode(batch)) == batch


@given(st.lists(batches, min_size=1, max_size=3))
def test_frames_of_unknown_length_and_several_of_them(parts: list[bytes]) -> None:
    assert unpacked(b"".join(map(in_pieces, parts))) == b"".join(parts)


@given(batches, st.data())
def test_what_is_damaged_is_refused_and_the_next_batch_is_whole(batch: bytes, data: st.DataObject) -> None:
    frame = packed(batch)
    cut = frame[: data.draw(st.integers(0, len(frame) - 1))]
    for damaged in (cut, frame + b"no frame", b"", b"\x28\xb5\x2f\xfd" + b"\xff" * 8):
        with pytest.raises(CorruptRecordException, match="zstd: "):
            unpacked(damaged)
    assert unpacked(frame) == batch


def test_threads_do_not_disturb_each_other() -> None:
    many = [bytes([number]) * (1000 * number) + number.to_bytes(8, "big") for number in range(200)]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(5):
            assert [*threads.map(unpacked, threads.map(packed, many))] == many


@pytest.mark.parametrize("extensions", ["", "1"], ids=["compiled", "Python"])
def test_batches_of_clients_go_this_way(extensions: str) -> None:
    program = """
        import cramjam
        from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
        from connectors.kafka.zstd import keep_zstd_contexts

        def nobody(*_, **__):
            raise AssertionError("cramjam was asked")

        cramjam.zstd.compress = cramjam.zstd.decompress = nobody
        keep_zstd_contexts()
        keep_zstd_contexts()
        builder = DefaultRecordBatchBuilder(2, DefaultRecordBatch.CODEC_ZSTD, 0, -1, -1, -1, 1 << 20)
        for number in range(9):
            builder.append(number, timestamp=None, key=b"k", value=b"abc" * 99, headers=[])
        batch = DefaultRecordBatch(bytearray(builder.build()))
        assert batch.compression_type == DefaultRecordBatch.CODEC_ZSTD and batch.validate_crc()
        assert [record.value for record in batch] == [b"abc" * 99] * 9
        print(DefaultRecordBatch.__module__)
    """
    environment = {"AIOKAFKA_NO_EXTENSIONS": extensions} if extensions else {}
    found = subprocess.run(
        [sys.executable, "-c", dedent(program)], env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert ("_crecords" in found.stdout) is not bool(extensions)
