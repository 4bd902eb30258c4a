"""Recorded fleets in which KV travels: engines' streams, and what is true of each block where that is known.

A directory has `FLEET.ENGINE.frames.msgpack.gz` for each engine, or each data-parallel rank of one
(`FLEET.ENGINE-dp1...`), and may have `FLEET.ENGINE.truth.json.gz` (tests/captures/README.md).
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from connectors.scrape.counters import parse_engine_metrics
from schemas.events import EngineCounters

_FRAMES, _TRUTH = ".frames.msgpack.gz", ".truth.json.gz"
_NAME = re.compile(r"(?P<replica>.+?)(-dp(?P<rank>\d+))?")
_ROLES = ("prefill", "decode", "both")


class Recorded(NamedTuple):
    """One engine, or rank of one."""

    name: str
    replica: str
    dp_rank: int
    role: str
    """As the settings have it; empty where nobody says."""
    frames: list[list[bytes]]
    """Topic, sequence number, payload."""
    truth: dict[str, Any]
    """Of the form that knows of each block; else empty."""

    def counted(self) -> Iterator[tuple[float, EngineCounters]]:
        """Yield (seconds of event time, what a scrape would have said); nothing where that is not known.

        The series does not distinguish where KV came from, but the last page does.
        """
        series, page = self.truth.get("series"), self.truth.get("metrics_text")
        start = self.truth.get("clock_start")
        if not series or not page or start is None:
            return
        ranks = parse_engine_metrics("\n".join(page)).ranks
        last = next(iter(ranks.values()), EngineCounters())
        if last.transferred_tokens is None:
            return
        rows = [dict(zip(self.truth["series_columns"], values, strict=True)) for values in series]
        for row in [row for row in rows if row.get("engine") == self.name] or rows:
            came = row["external_kv_transfer"] if last.transferred_tokens else 0
            yield (
                start + row["t"],
                EngineCounters(computed_tokens=row["local_compute"], transferred_tokens=came),
            )


def fleets(directory: Path) -> dict[str, list[Recorded]]:
    """Return the engines of each fleet, both by name."""
    found: dict[str, list[Recorded]] = {}
    for path in sorted(directory.glob(f"*{_FRAMES}")):
        name = path.name.removesuffix(_FRAMES)
        fleet, _, engine = name.rpartition(".")
        found.setdefault(fleet or engine, []).append(_read(directory, name, engine))
    return found


def _read(directory: Path, name: str, engine: str) -> Recorded:
    parts = _NAME.fullmatch(engine)
    assert parts is not None
    truth = directory / f"{name}{_TRUTH}"
    known: dict[str, Any] = json.loads(gzip.decompress(truth.read_bytes())) if truth.exists() else {}
    role = known.get("role") or engine.partition("-")[0]
    if "stored" not in known:
        known = {}
    frames = msgspec.msgpack.decode(gzip.decompress((directory / f"{name}{_FRAMES}").read_bytes()))
    return Recorded(
        engine,
        parts["replica"],
        int(parts["rank"] or 0),
        role if role in _ROLES else "",
        frames,
        known,
    )
