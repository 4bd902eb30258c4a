"""How fast this machine is right now: a fixed piece of work to compare other machines' figures by."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from figures import Figures
from payloads import captures

CAPTURE = "vllm-0.33.0-map"
ROUNDS = 5


class _Stored(msgspec.Struct, tag="BlockStored", gc=False):
    block_hashes: list[int]
    token_ids: msgspec.Raw = msgspec.Raw()
    extra_keys: msgspec.Raw = msgspec.Raw()


class _Removed(msgspec.Struct, tag="BlockRemoved", gc=False):
    block_hashes: list[int]


class _Cleared(msgspec.Struct, tag="AllBlocksCleared", gc=False):
    pass


class _Batch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[_Stored | _Removed | _Cleared]
    rank: Any = None


def run(figures: Figures) -> None:
    """Decode one capture and count references in a dict, in memory: the least that the job can cost."""
    payloads = captures()[CAPTURE]
    decode = msgspec.msgpack.Decoder(_Batch).decode
    best = float("inf")
    for _ in range(ROUNDS):
        counts: dict[int, int] = {}
        began = time.process_time()
        for payload in payloads:
            for event in decode(payload).events:
                if type(event) is _Removed:
                    for block in event.block_hashes:
                        left = counts.get(block, 0) - 1
                        if left > 0:
                            counts[block] = left
                        else:
                            counts.pop(block, None)
                elif type(event) is _Stored:
                    for block in event.block_hashes:
                        counts[block] = counts.get(block, 0) + 1
                else:
                    counts.clear()
        best = min(best, time.process_time() - began)
    figures.add("this machine now: decode and dict in memory", len(payloads) / best, "batches/s/core")
