"""Every capture's normalised batches, recounted naively, agree with what the engine itself knew."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from connectors.normalise.normaliser import Normaliser
from schemas.events import Batch, Cleared, Removed, Stored
from schemas.hashes import unpack_hashes
from tests.support.inputs.captures import (
    NAMES,
    captured_batches,
    captured_final,
    captured_frames,
    captured_truth,
)
from tests.support.suite.night import first_by_day
from tests.support.wire import REMOVED_FIELDS, STORED_FIELDS

ERAS = {
    "sglang-0.5.15-array": ("sglang", "sglang-array-7"),
    "vllm-0.9.2-array-builtin-hash": ("", "array-6"),
    "vllm-0.16.0-array": ("vllm", "array-8"),
    "vllm-0.23.0-array-offload-cpu": ("vllm", "array-12"),
    "vllm-0.25.1-map-dp0": ("vllm", "map"),
    "vllm-0.25.1-map-dp1": ("vllm", "map"),
    "vllm-0.33.0-map": ("vllm", "map"),
    "vllm-0.33.0-map-hybrid-swa": ("vllm", "map"),
}


def apply(batch: Batch, cached: Counter[tuple[str, int, int]]) -> None:
    """Count physical copies by (medium, group, hash); a clear empties the GPU only."""
    for event in batch.events:
        if isinstance(event, Stored):
            for block in unpack_hashes(event.hashes):
                cached[event.medium, event.group_idx, block] += 1
        elif isinstance(event, Removed):
            for block in unpack_hashes(event.hashes):
                cached[event.medium, event.group_idx, block] -= 1
                assert cached[event.medium, event.group_idx, block] >= 0
                if not cached[event.medium, event.group_idx, block]:
                    del cached[event.medium, event.group_idx, block]
        elif isinstance(event, Cleared):
            for key in [key for key in cached if key[0] == "gpu"]:
                del cached[key]
        else:
            pytest.fail(f"unexpected {event}")


def unsigned(value: int | str) -> int:
    return int(value[-16:], 16) if isinstance(value, str) else value % 2**64


@pytest.mark.parametrize("name", first_by_day(NAMES, 4))
def test_the_recount_agrees_with_the_engine_at_every_batch_and_at_the_end(name: str) -> None:
    known = captured_truth(name)
    checkpoints = {row[0]: row[1:] for row in known["checkpoints"]}
    cached: Counter[tuple[str, int, int]] = Counter()
    checked = 0
    for batch in captured_batches(name):
        apply(batch, cached)
        gpu = [copies for (medium, _, _), copies in cached.items() if medium == "gpu"]
        if known["engine"] == "sglang":
            assert checkpoints[batch.seq] == [sum(gpu)], f"seq {batch.seq}"
        else:
            assert checkpoints[batch.seq][:2] == [len(gpu), sum(gpu)], f"seq {batch.seq}"
        if "offload" in known:
            assert checkpoints[batch.seq][3] == sum(n for (m, _, _), n in cached.items() if m == "cpu")
        checked += 1
    assert checked == known["published_batches"] == len(checkpoints)

    final = {(group, block): n for (medium, group, block), n in cached.items() if medium == "gpu"}
    assert final == captured_final(name)
    assert {medium for medium, _, _ in cached} == ({"gpu", "cpu"} if "offload" in known else {"gpu"})


@pytest.mark.parametrize("name", NAMES)
def test_engine_events_are_counted_before_removals_are_merged(name: str) -> None:
    for (_, _, payload), batch in zip(captured_frames(name), captured_batches(name), strict=True):
        assert batch.engine_events == len(msgspec.msgpack.decode(payload)[1])
        assert not any(
            isinstance(one, Removed)
            and isinstance(two, Removed)
            and (one.medium, one.raw_medium, one.group_idx) == (two.medium, two.raw_medium, two.group_idx)
            for one, two in zip(batch.events, batch.events[1:], strict=False)
        )


def test_the_events_of_a_capture_keep_the_engines_order_and_fields() -> None:
    """Compares with a decoding of its own: plain MessagePack values, hash by hash."""
    for name in NAMES:
        for (_, _, payload), batch in zip(captured_frames(name), captured_batches(name), strict=True):
            ts, engine_events, _ = msgspec.msgpack.decode(payload)
            assert batch.ts == ts
            assert list(flat(batch)) == list(plain(engine_events))


def flat(batch: Batch) -> Iterator[tuple[object, ...]]:
    for event in batch.events:
        if isinstance(event, Stored):
            parent = None if event.parent is None else int.from_bytes(event.parent, "big")
            yield (
                "BlockStored",
                unpack_hashes(event.hashes),
                parent,
                event.block_size,
                event.tokens,
                event.lora,
                event.medium,
                event.group_idx,
                event.spec_kind,
                event.sliding_window,
            )
        elif isinstance(event, Removed):
            for block in unpack_hashes(event.hashes):
                yield "BlockRemoved", block, event.medium, event.group_idx
        else:
            yield (type(event).__name__,)


def plain(engine_events: list[Any]) -> Iterator[tuple[object, ...]]:
    for event in engine_events:
        if isinstance(event, list):
            event = dict(
                zip(STORED_FIELDS if event[0] == "BlockStored" else REMOVED_FIELDS, event, strict=False)
            )
        medium = (event.get("medium") or "gpu").lower()
        group_idx = event.get("group_idx") or 0
        hashes = tuple(
            unsigned(block.hex() if isinstance(block, bytes) else block)
            for block in event.get("block_hashes", ())
        )
        if event["type"] == "BlockStored":
            parent, lora_id = event["parent_block_hash"], event["lora_id"]
            yield (
                "BlockStored",
                hashes,
                None if parent is None else unsigned(parent),
                event["block_size"],
                event["block_size"] * len(hashes),
                event.get("lora_name") or (None if lora_id is None else str(lora_id)),
                medium,
                group_idx,
                event.get("kv_cache_spec_kind"),
                event.get("kv_cache_spec_sliding_window"),
            )
        elif event["type"] == "BlockRemoved":
            for block in hashes:
                yield "BlockRemoved", block, medium, group_idx
        else:
            yield ("Cleared",)


@pytest.mark.parametrize("name", NAMES)
def test_engine_and_era_are_recognised(name: str) -> None:
    normaliser = Normaliser(max_frame_bytes=1 << 24)
    assert (normaliser.era.engine, normaliser.era.wire_era) == ("", "")
    for seq, (_, _, payload) in enumerate(captured_frames(name)):
        normaliser.normalise(payload, seq=seq, received_at=0.0)
    assert (normaliser.era.engine, normaliser.era.wire_era) == ERAS[name]
