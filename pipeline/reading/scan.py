"""The compiled loop that reads plain runs: many records at once, batch by batch and event by event."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import big_endian_at, borrowed, compiled, inner, pointer_to_bytes
from connectors.process.msgpack import (
    Bytes,
    behind_integer,
    integer_at,
    length_at,
    number_at,
    put_numbers,
)
from pipeline.reading.columns import REMOVAL, EventRows, Hashes
from pipeline.reading.event import NONE, REFUSED, event_at
from schemas.events import LATEST

Ints = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]

RUN: Final = np.dtype(
    [
        ("batches", np.int64),  # 0: not plain, and nothing else means anything
        ("first_event", np.int64),
        ("first_hash", np.int64),
        ("end", np.int64),  # of its events: the first one after it
        ("hashes_end", np.int64),
        ("first_seq", np.int64),
        ("last_seq", np.int64),
        ("engine_events", np.int64),
        ("shapes", np.int64),  # which there are, a bit for each
        ("pools", np.int64),  # the same for media and groups
        ("has_loras", np.int64),
        ("has_links", np.int64),
        ("first_time", np.float64),  # of its batches, the least
        ("last_time", np.float64),  # the greatest
        ("time", np.float64),  # of its last batch, like the next one
        ("received_at", np.float64),
        ("latest_receipt", np.float64),
        ("lag", np.float64),  # the greatest time from publication to receipt
    ]
)
"""What is known of a run, and where its events lie."""

TABLE_ROWS: Final = 62
"""Of a chunk's tables of pools and shapes; runs that need more rows are not plain."""
LORA_ROWS: Final = 512
"""Of a chunk's table of LoRAs."""
_MOST_ENGINE_EVENTS: Final = 2**32 - 1
_LEAST_FIELDS, _MOST_FIELDS = 4, 6
_FALSE: Final = 0xC2


class Tables(NamedTuple):
    """What events of a chunk refer to by row."""

    pools: Ints
    """(TABLE_ROWS, 3): position and bytes of the medium's name, NONE for GPUs, and the group."""
    shapes: Ints
    """(TABLE_ROWS, 3): pool, block size or REMOVAL, 1 where it has several hashes."""
    loras: Ints
    """(LORA_ROWS, 2): position and bytes of the name."""
    used: Ints
    """(3,): how many rows of each are used."""


@inner
def _same_text(data: Bytes, one: int, other: int, size: int) -> bool:
    same = True
    for i in range(size):
        same = same and data[one + i] == data[other + i]
    return same


@inner
def _pool_of(data: Bytes, pools: Ints, used: int, medium: int, size: int, group: int) -> int:
    """Return the row of a pool, which may be the next free one."""
    row = 0
    while row < used and not (
        pools[row, 1] == size
        and pools[row, 2] == group
        and (size == NONE or _same_text(data, pools[row, 0], medium, size))
    ):
        row += 1
    return row


@inner
def _shape_of(shapes: Ints, used: int, pool: int, block_size: int, several: int) -> int:
    row = 0
    while row < used and not (
        shapes[row, 0] == pool and shapes[row, 1] == block_size and shapes[row, 2] == several
    ):
        row += 1
    return row


@inner
def _lora_of(data: Bytes, loras: Ints, used: int, name: int, size: int) -> int:
    row = 0
    while row < used and not (loras[row, 1] == size and _same_text(data, loras[row, 0], name, size)):
        row += 1
    return row


@compiled
def scan_runs(
    packed: npt.NDArray[np.uint8],
    ends: Ints,
    written: Times,
    ahead: float,
    behind: float,
    runs: npt.NDArray[Any],
    events: EventRows,
    hashes: Hashes,
    links: Hashes,
    tables: Tables,
) -> None:
    """Read the batches of n records, which lie one after the other in `packed`, up to `ends` (n,).

    Fills `runs` (n,), and `events`, `hashes` and `links`, which have room for all; `links` only if there are
    any, with zeros for hashes that have none. Clocks are believed as `windows.event_time` does with `ahead`
    and `behind`. A record that was received more than `ahead` after the log's time of it, `written` (n,), is
    not plain (`windows.bounded_by_log`).
    """
    packed, ends, runs, written = borrowed(packed), borrowed(ends), borrowed(runs), borrowed(written)
    events, hashes, links, tables = borrowed(events), borrowed(hashes), borrowed(links), borrowed(tables)
    any_links = False
    pools, shapes, loras, used = tables.pools, tables.shapes, tables.loras, tables.used
    data = pointer_to_bytes(packed.ctypes.data)
    at = hash_at = 0
    p = 0
    for number in range(len(ends)):
        end = ends[number]
        run = runs[number]
        run.batches = 0
        first_event, first_hash = at, hash_at
        used_pools, used_shapes, used_loras = used[0], used[1], used[2]
        shape_bits = pool_bits = engine_events = has_loras = has_links = 0
        first_time = lag = np.inf
        last_time = latest_receipt = time = received_at = 0.0
        first_seq = seq = 0
        batches, p = length_at(data, p, end, 0x90, 0xDC)
        plain = batches > 0
        for batch in range(batches):
            fields, p = length_at(data, p, end, 0x90, 0xDC)
            plain = fields >= _LEAST_FIELDS and fields <= _MOST_FIELDS
            if not plain:
                break
            number_here = integer_at(data, p, end)
            plain = number_here >= 0 and (batch == 0 or number_here == seq + 1)
            if not plain:
                break
            seq = number_here
            p = behind_integer(data, p)
            time, received_at = number_at(data, p, end), number_at(data, p + 9, end)
            p += 18
            plain = (
                received_at >= 0.0
                and received_at <= LATEST
                and time >= max(0.0, received_at - behind)
                and time <= received_at + ahead
            )
            if not plain:
                break
            if batch == 0:
                first_seq = seq
                first_time = last_time = time
                latest_receipt, lag = received_at, received_at - time
            else:
                first_time, last_time = min(first_time, time), max(last_time, time)
                latest_receipt, lag = max(latest_receipt, received_at), max(lag, received_at - time)
            count, p = length_at(data, p, end, 0x90, 0xDC)
            plain = count >= 0
            for _ in range(count):
                event = event_at(data, p, end)
                p = event.end
                plain = p != REFUSED
                if not plain:
                    break
                pool = _pool_of(data, pools, used[0], event.medium, event.medium_bytes, event.group_idx)
                size = event.block_size if event.stored else REMOVAL
                several = 1 if event.stored and event.hash_count > 1 else 0
                shape = _shape_of(shapes, used[1], pool, size, several)
                lora = -1
                if event.stored and event.lora_bytes != NONE:
                    lora = _lora_of(data, loras, used[2], event.lora, event.lora_bytes)
                    has_loras = 1
                plain = pool < TABLE_ROWS and shape < TABLE_ROWS and lora < LORA_ROWS
                if not plain:
                    break
                if pool == used[0]:
                    pools[pool, 0], pools[pool, 1] = event.medium, event.medium_bytes
                    pools[pool, 2] = event.group_idx
                    used[0] += 1
                if shape == used[1]:
                    shapes[shape, 0], shapes[shape, 1], shapes[shape, 2] = pool, size, several
                    used[1] += 1
                if lora == used[2]:
                    loras[lora, 0], loras[lora, 1] = event.lora, event.lora_bytes
                    used[2] += 1
                shape_bits |= 1 << shape
                pool_bits |= 1 << pool
                row = events[at]
                row.time = time
                row.hashes = event.hash_count
                row.block_size = size
                row.pool = pool
                row.adapter = lora + 1
                row.may_repeat = event.stored and event.parent == NONE
                row.parent = np.uint64(0) if event.parent == NONE else big_endian_at(data, event.parent)
                put_numbers(data, event.hashes, event.hash_count, hashes, hash_at)
                if event.links != NONE:
                    if not any_links:
                        links[:hash_at] = 0
                    put_numbers(data, event.links, event.hash_count, links, hash_at)
                    has_links, any_links = 1, True
                elif any_links:
                    links[hash_at : hash_at + event.hash_count] = 0
                at += 1
                hash_at += event.hash_count
            if not plain:
                break
            if fields > _LEAST_FIELDS:
                more = integer_at(data, p, end)
                plain = more >= 0 and more <= _MOST_ENGINE_EVENTS
                if not plain:
                    break
                engine_events += more
                p = behind_integer(data, p)
            if fields == _MOST_FIELDS:
                plain = p < end and data[p] == _FALSE
                p += 1
            if not plain:
                break
        plain = plain and (written[number] <= 0.0 or latest_receipt <= written[number] + ahead)
        if plain and p == end:
            run.first_event, run.first_hash = first_event, first_hash
            run.batches, run.first_seq, run.last_seq = batches, first_seq, seq
            run.engine_events = engine_events
            run.shapes, run.pools, run.has_loras = shape_bits, pool_bits, has_loras
            run.has_links = has_links
            run.first_time, run.last_time, run.lag = first_time, last_time, lag
            run.time, run.received_at, run.latest_receipt = time, received_at, latest_receipt
        else:
            # Give back the room that it filled.
            at, hash_at = first_event, first_hash
            used[0], used[1], used[2] = used_pools, used_shapes, used_loras
        run.end, run.hashes_end = at, hash_at
        p = end
