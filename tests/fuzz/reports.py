"""Damaged reports of LMCache's servers: none raises, none makes a record that its readers refuse."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from typing import Any

import msgspec

from connectors.lmcache.decoder import ReportDecoder
from connectors.lmcache.streams import MemoryStream, ReportStream, StorageStream
from connectors.normalise.pseudonyms import Pseudonyms
from connectors.sources import Source
from schemas.events import EventsRecord
from schemas.settings import Connector
from tests.support.inputs.captures import reported

NOW = 1_800_000_000.0
MODEL = "org/model-x"
SECRETS = (b"tenant-7", b"31999")
"""A salt, and a token id in decimal digits: neither may be in a record."""
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**63,
    2**64,
    10**30,
    0.5,
    1e308,
    "",
    "x" * 300,
    "\u2028\x00",
    [],
    [[]],
    {},
    "store",
    "l2",
    "ff" * 16,
    4_102_444_801,
)

_decode = msgspec.msgpack.Decoder(EventsRecord).decode
_encode = msgspec.msgpack.Encoder().encode


class Reports:
    """Takes one damaged report after another, with streams that go on from one to the next."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self._good = [json.loads(value) for _, value in reported("lmcache-0.5.6", "records")]
        self._decoders = [ReportDecoder([MODEL], salts) for salts in (None, Pseudonyms(b"k" * 16))]
        self._streams = [self._new(kind) for kind in (MemoryStream, StorageStream)]

    @staticmethod
    def _new(kind: type[MemoryStream] | type[StorageStream]) -> ReportStream:
        source = Source("a", 0, MODEL, "t", f"{MODEL}/lmcache/t", "kafka:t")
        return kind(source, Connector(record_bytes=4096), lambda: NOW)

    def check(self, rng: random.Random) -> None:
        """Raises whatever is wrong."""
        payload = self._damaged(rng)
        found, refused = rng.choice(self._decoders).decode(payload)
        self.outcomes.update({f"report {reason}": count for reason, count in refused.items()})
        self.outcomes["report batches"] += len(found)
        for one in found:
            for part in (*one.parts.values(), None):
                stream = rng.choice(self._streams)
                for record in (*stream.take(one, part, NOW), *stream.flush()):
                    encoded = _encode(record)
                    _decode(encoded)
                    for secret in SECRETS:
                        assert secret not in encoded

    def _damaged(self, rng: random.Random) -> bytes:
        report = json.loads(json.dumps(rng.choice(self._good)))
        for _ in range(rng.randint(0, 3)):
            holder, key = self._somewhere(report, rng)
            if rng.random() < 0.2:
                del holder[key]
                break
            # A copy, as the next damage may be inside it.
            holder[key] = copy.deepcopy(rng.choice(ODD))
        payload = bytearray(json.dumps(report).encode())
        for _ in range(rng.choice((0, 0, 0, 1, 5))):
            payload[rng.randrange(len(payload))] = rng.randrange(256)
        return bytes(payload[: rng.randint(0, len(payload))] if rng.random() < 0.1 else payload)

    @staticmethod
    def _somewhere(report: dict[str, Any], rng: random.Random) -> tuple[Any, Any]:
        holder: Any = report
        while True:
            key = rng.choice([*holder] if isinstance(holder, dict) else range(len(holder)))
            inner = holder[key]
            if not isinstance(inner, (dict, list)) or not inner or key == "token_ids" or rng.random() < 0.05:
                return holder, key
            holder = inner
