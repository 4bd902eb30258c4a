"""What the figures say of each fill beside what the engines knew of it."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from connectors.normalise.hashes import pack_hash
from pipeline.verify.fleet.changes import Change
from pipeline.verify.fleet.parsed import Chain
from pipeline.verify.fleet.recount import FleetRecount
from pipeline.verify.fleet.transfers import Would
from schemas.residency import ResidencyRecord
from schemas.settings import Fleet
from tests.support.pairs.recorded import Recorded

AVOIDABLE = ("peer", "peer_and_evicted", "evicted", "evicted_elsewhere", "cleared")
_SAID_TO_COME = ("transferred", "promoted")
_CAME = ("transferred", "reloaded")
_COMPUTED = ("computed", "computed_tail")
_KNOWN = (
    *("held_by_a_prefill_engine", "held_by_a_decode_engine"),
    *("held_here_before", "held_elsewhere_before"),
)
"""Columns that say that a block need not have been computed."""

Fill = tuple[tuple[str, int], int, float]
"""Replica and rank, hash, event time."""


class Causes(FleetRecount):
    """The recount of a shard, which notes the cause of each fill, and its tokens."""

    def __init__(self) -> None:
        super().__init__(Fleet())
        self.of: defaultdict[Fill, list[tuple[str, int]]] = defaultdict(list)

    def _filled(self, offset: int, change: Change, would: Would, known: Chain | None) -> None:
        self.of[change.of.source, change.hash, change.at].append((would.cause, change.size))
        super()._filled(offset, change, would, known)


class Judged(NamedTuple):
    """One engine; tokens."""

    said: Counter[str]
    """By cause, in the recount."""
    came: int
    """Of fills, truly."""
    avoidable: int
    """Of fills, truly: computed for a prompt, though somebody had or had had them."""
    prompt: int
    """Of whole blocks of prompts that were filled; what is wrong is of these."""
    wrong: int
    """Came and said to be computed, or the other way round."""
    wrong_unless_failed: int
    """The same without requests whose transfer failed."""
    unknown: int
    """Blocks that the engine filled and the recount did not."""


def causes(applied: Iterable[Sequence[ResidencyRecord]]) -> list[Causes]:
    """Recount what each shard applied."""
    shards = []
    for records in applied:
        shard = Causes()
        for offset, record in enumerate(records):
            shard.apply(offset, record)
        shards.append(shard)
    return shards


def judged(engine: Recorded, shards: Sequence[Causes], clock: float = 0.0) -> Judged:
    """Compare each block that the engine filled with its cause; without a truth, only return what is said.

    The engine was played with a clock that is so many seconds ahead.
    """
    source = engine.replica, engine.dp_rank
    fills = {fill: deque(of) for shard in shards for fill, of in shard.of.items() if fill[0] == source}
    said: Counter[str] = Counter()
    for cause, tokens in chain.from_iterable(fills.values()):
        said[cause] += tokens
    failed = {each["ix"] for each in engine.truth.get("requests", ()) if each.get("load_failed")}
    found: Counter[str] = Counter()
    for time, row in _filled_blocks(engine, clock):
        here = fills.get((source, int.from_bytes(_hash(row["hash"]), "big"), time))
        if not here:
            found["unknown"] += 1
            continue
        cause, tokens = here.popleft()
        came = row["kind"] in _CAME
        found["came"] += tokens * came
        if row["kind"] in _COMPUTED and any(row.get(column) for column in _KNOWN):
            found["avoidable"] += tokens
        if came or row["kind"] == "computed":
            wrong = tokens * (came != (cause in _SAID_TO_COME))
            found["prompt"] += tokens
            found["wrong"] += wrong
            found["wrong_unless_failed"] += wrong * (row.get("request_ix") not in failed)
    return Judged(said, **{figure: found[figure] for figure in Judged._fields[1:]})


def _filled_blocks(engine: Recorded, clock: float) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield (event time, row of the truth) of each block that the engine filled."""
    columns = engine.truth.get("stored_columns", ())
    times = {}
    for _, seq, payload in engine.frames:
        body = msgspec.msgpack.decode(payload)
        times[int.from_bytes(seq, "big")] = (body[0] if isinstance(body, list) else body["ts"]) + clock
    for values in engine.truth.get("stored", ()):
        row = dict(zip(columns, values, strict=True))
        if not row.get("held_here_already") and row["seq"] in times:
            yield times[row["seq"]], row


def _hash(value: int | str) -> bytes:
    return pack_hash(bytes.fromhex(value) if isinstance(value, str) else value)
