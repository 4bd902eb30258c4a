"""Recordings: what is written is read, whole or torn; other files are refused."""

from __future__ import annotations

import gzip
import stat
import tempfile
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pipeline.recordings.format import (
    Frame,
    RecordedSource,
    Recording,
    RecordingError,
    RecordingWriter,
    published_at,
    replica_name,
)
from tests.support.checkout import CAPTURES

SOURCES = (RecordedSource("a", 0, "m"), RecordedSource("a", 1, "m"))

frames = st.lists(
    st.builds(
        Frame,
        st.integers(0, 1),
        st.floats(0, 4e9),
        st.lists(st.binary(max_size=40), max_size=4).map(tuple),
    ),
    max_size=8,
)


def write(path: Path, written: list[Frame]) -> bytes:
    with RecordingWriter(path, SOURCES) as writer:
        for frame in written:
            writer.write(frame)
    return path.read_bytes()


def read(path: Path) -> tuple[list[Frame], bool]:
    with Recording(path) as recording:
        return list(recording.frames()), recording.torn


@given(frames, st.data())
def test_every_torn_end_gives_the_whole_frames_before_it(written: list[Frame], data: st.DataObject):
    with tempfile.TemporaryDirectory() as directory:
        content = write(Path(directory) / "whole", written)
        ends = [5 + int.from_bytes(content[1:5], "big")]
        while ends[-1] < len(content):
            ends.append(ends[-1] + 5 + int.from_bytes(content[ends[-1] + 1 : ends[-1] + 5], "big"))
        assert len(ends) == len(written) + 1
        kept = data.draw(st.integers(ends[0], len(content)))
        torn = Path(directory) / "torn"
        torn.write_bytes(content[:kept])
        whole = sum(end <= kept for end in ends) - 1
        assert read(torn) == (written[:whole], kept not in ends)
        packed = Path(directory) / "packed"
        packed.write_bytes(gzip.compress(content[:kept]))
        assert read(packed) == (written[:whole], kept not in ends)


def test_a_recording_is_private_and_never_overwritten(tmp_path: Path):
    path = tmp_path / "a.kvrec"
    write(path, [])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        RecordingWriter(path, SOURCES)


def test_a_capture_reads_as_its_batches_with_the_engines_clock():
    path = CAPTURES / "vllm-0.16.0-array.frames.msgpack.gz"
    batches = msgspec.msgpack.decode(gzip.decompress(path.read_bytes()))
    read_frames, torn = read(path)
    assert [list(frame.parts) for frame in read_frames] == batches
    assert [frame.received_at for frame in read_frames] == [
        msgspec.msgpack.decode(payload)[0] for _, _, payload in batches
    ]
    assert not torn


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty, not a kvlens recording"),
        (b"hello", "not a kvlens recording"),
        (b'{"hash_ids": []}', "a request trace, not a kvlens recording: `kvlens whatif` reads those"),
        (b"\xc6\0\0\0\x09", "ends within its header"),
        (b"\xc6\0\0\0\x01\x01", "not a kvlens recording"),
        (
            b"\xc6\0\0\0\x35"
            + msgspec.msgpack.encode({"format": "kvlens-recording", "version": 9, "sources": []}).ljust(53),
            "not a kvlens recording",
        ),
        (
            b"\xc6\x00\x00\x00\x09\x81\xa6format\xa1\xff",
            "not a kvlens recording",
        ),
        (b"\x93\x01\x02\x03", "not a kvlens recording: Expected `array`, got `int` - at `$[0]`"),
        (
            gzip.compress(b"\x91" + bytes(range(256)) * 99, mtime=0)[:-4],
            "cut short; this format cannot be read in part",
        ),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, problem: str):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(RecordingError) as refused:
        read(path)
    assert str(refused.value) == f"{path}: {problem}"


def test_a_newer_version_and_damage_in_the_middle_are_told(tmp_path: Path):
    path = tmp_path / "file"
    header = msgspec.msgpack.encode({"format": "kvlens-recording", "version": 9, "sources": []})
    path.write_bytes(b"\xc6" + len(header).to_bytes(4, "big") + header)
    with pytest.raises(RecordingError, match="version 9 of the format; this kvlens reads 1"):
        read(path)
    content = bytearray(write(tmp_path / "good", [Frame(0, 1.0, (b"x" * 50,))] * 2))
    for place, problem in ((-69, "no frame begins where one should"), (-64, "frame 1 is damaged")):
        damaged = content[:]
        damaged[place] = 0xC1
        (tmp_path / "bad").write_bytes(damaged)
        with pytest.raises(RecordingError, match=problem):
            read(tmp_path / "bad")


def test_damage_in_a_packed_file_is_told(tmp_path: Path):
    packed = zstandard.compress(write(tmp_path / "whole", [Frame(0, 1.0, (bytes(range(256)) * 99,))] * 9))
    (tmp_path / "bad").write_bytes(packed[: len(packed) // 2] + b"\xff" * len(packed))
    with pytest.raises(RecordingError, match="bad: damaged: zstd decompressor error"):
        read(tmp_path / "bad")


@pytest.mark.parametrize(
    ("payload", "at"),
    [
        ([1.5, [], 0], 1.5),
        ({"ts": 2.5, "events": []}, 2.5),
        ([7], 7.0),
        ([], None),
        ("x", None),
        (["x"], None),
    ],
)
def test_the_engines_clock_is_read_from_both_envelopes(payload: object, at: float | None):
    assert published_at(msgspec.msgpack.encode(payload)) == at


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("vllm-0.33.0-map.frames.msgpack.gz", "vllm-0.33.0-map"),
        ("a.kvrec", "a"),
        ("x.y", "x.y"),
        (".gz", ".gz"),
    ],
)
def test_a_replica_is_named_after_its_file(file: str, name: str):
    assert replica_name(Path("/somewhere") / file) == name
