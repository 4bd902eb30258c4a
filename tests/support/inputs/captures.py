"""The streams of real engines that tests replay, and what each engine knew (tests/captures/README.md)."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from connectors.normalise.normaliser import Normaliser
from connectors.normalise.scan import warm_up
from schemas.events import Batch, EventsRecord
from tests.support.checkout import CAPTURES
from tests.support.inputs.event_records import opened, record

_FRAMES, _TRUTH = ".frames.msgpack.gz", ".truth.json.gz"
_PUBLISHERS = CAPTURES / "publishers"
_EMITTERS = CAPTURES / "emitters"
_SERVERS = CAPTURES / "servers"
_TIERS = CAPTURES / "tiers"
_OWNERS = CAPTURES / "owners"
_PAIRS = CAPTURES / "pairs"


def _names(room: Path) -> list[str]:
    return sorted(path.name.removesuffix(_FRAMES) for path in room.glob(f"*{_FRAMES}"))


NAMES = _names(CAPTURES)
PUBLISHERS = _names(_PUBLISHERS)
"""Of publishers that are neither vLLM nor SGLang; their truth is of another form."""
EMITTERS = _names(_EMITTERS)
"""In which several emitters speak through one socket."""
TIERS = _names(_TIERS)
"""Of engines with a second tier, whose truth says what is on either."""
OWNERS = _names(_OWNERS)
"""Of engines beside which somebody else owns media, whose truth says what is on each."""

PAIRS = _names(_PAIRS)
"""Of a prefill and a decode engine; what is true of both together is in the README."""


def captured_frames(name: str) -> list[list[bytes]]:
    """Return the messages of a capture as they came: topic, sequence number (8 bytes), payload."""
    packed = gzip.decompress((_room(name) / f"{name}{_FRAMES}").read_bytes())
    found: list[list[bytes]] = msgspec.msgpack.decode(packed)
    return found


def captured_records(name: str, received_at: float = 1_900_000_000.0) -> Iterator[EventsRecord]:
    """Yield a record for each batch of a capture, by default received after all of them."""
    warm_up()
    normaliser = Normaliser(max_frame_bytes=1 << 24)
    for at, (_, seq, payload) in enumerate(captured_frames(name)):
        batch = normaliser.normalise(payload, seq=int.from_bytes(seq, "big"), received_at=received_at)
        said = {"engine": normaliser.era.engine, "wire_era": normaliser.era.wire_era}
        yield record(*([] if at else [opened(batch.ts)]), batch, replica=name, **said)


def captured_batches(name: str) -> Iterator[Batch]:
    for told in captured_records(name):
        yield told.batches[-1]


def captured_truth(name: str) -> dict[str, Any]:
    """Return the engine's own account of a capture."""
    found: dict[str, Any] = json.loads(gzip.decompress((_room(name) / f"{name}{_TRUTH}").read_bytes()))
    return found


def captured_final(name: str) -> Counter[tuple[int, int]]:
    """Return the copies that the engine has on the GPU in the end, by (group, block)."""
    truth = captured_truth(name)
    final: Counter[tuple[int, int]] = Counter()
    for row in truth["final_cached"]:
        group, shown, copies = (0, row[1], 1) if truth["engine"] == "sglang" else row
        block = int(shown[-16:], 16) if isinstance(shown, str) else shown % 2**64
        final[group, block] += copies
    return final


def _room(name: str) -> Path:
    if name in EMITTERS:
        return _EMITTERS
    if name in TIERS:
        return _TIERS
    if name in OWNERS:
        return _OWNERS
    if name in PAIRS:
        return _PAIRS
    return _PUBLISHERS if name in PUBLISHERS else CAPTURES


def reported(name: str, how: str) -> list[tuple[bytes, bytes]]:
    """Return what servers reported: of `records` (key, value) of Kafka, of `posts` (content type, body)."""
    packed = gzip.decompress((_SERVERS / f"{name}.{how}.msgpack.gz").read_bytes())
    return [(first, second) for first, second in msgspec.msgpack.decode(packed)]


def reported_truth(name: str) -> dict[str, Any]:
    """Return what the servers' own directory made of it, and what their storage held."""
    found: dict[str, Any] = json.loads(gzip.decompress((_SERVERS / f"{name}{_TRUTH}").read_bytes()))
    return found
