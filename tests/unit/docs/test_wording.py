"""Words that first readers stumbled over are nowhere in what users read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

FOLDERS = ("connectors", "deploy", "docs", "pipeline", "schemas")
SUFFIXES = {".css", ".html", ".js", ".json", ".md", ".py", ".sql", ".toml", ".yaml"}
REPLACED = ("0009_advice.sql",)
"""Released, so it stays as it is; later migrations define its views anew."""
PLAINER = {
    "what goes: evictions": "what leaves the cache",
    "although it had been there before": "which prefill was avoidable",
    "keeping conversations in place": "sends conversations back to their replica",
    "switch the engine's events on": "enable KV events on the engine",
    "is all well?": "check the installation",
    "for those that the settings do not name": "unless you configure yours",
    "a request trace it plays": "given a request trace, it replays it",
    "takes these pictures anew": "regenerates the screenshots",
    "by what would have saved it": "by avoidable cause",
    "the same by replica": "avoidable prefill by replica",
    "replicas that lose most": "top replicas by avoidable prefill",
    "lives of the engines": "engine sessions",
    "events that nobody could read": "undecodable events",
    "way from engine to connector": "ingest latency",
    "streams with something wrong": "streams with problems",
    "hashes that do not compare": "incompatible block hashes",
    "evicted and wanted again after": "time from eviction to re-use",
    "age of the newest rows": "data freshness",
    "drag across a picture": "drag to zoom",
    "times are your own": "times in Europe/Berlin",
    "what is wrong stands at the top": "see the error above",
    "nothing in this range yet": "no data for this range and these filters",
    "joined late": "kvlens started after the engine",
    "joined the source": "kvlens started after the engine",
    "where two claim a replica": "the first in this order wins",
    "what comes without a batch": "events outside a batch",
    "come without a batch": "events outside a batch",
    "has the least doubt about": "is unsure of",
    "waiting for what is missing before them": "held back until missing batches are replayed",
    "stop so long after it is ready": "stop this many seconds after start-up",
    "leave records from this offset": "ignore records at or after this offset",
    "ranks hash unlike": "each rank uses its own random hash seed",
    "hash unlike": "hash differently",
    "hashes unlike": "hashes differently",
    "worth an alert": "recommended alerts",
}
"""{what nobody understood: what says it better}."""


def files() -> list[Path]:
    """Return what users and operators may read, the page and generated files included."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    found = [path for path in found if path.name not in REPLACED]
    return [ROOT / "README.md", ROOT / "Makefile", *found]


@pytest.fixture(scope="module")
def texts() -> dict[Path, str]:
    return {path: re.sub(r"\s+", " ", path.read_text("utf-8")).lower() for path in files()}


def test_what_users_read_is_found(texts: dict[Path, str]) -> None:
    assert {path.suffix for path in texts} >= SUFFIXES - {".toml"}


@pytest.mark.parametrize("phrase", PLAINER)
def test_plainer_words_are_used(phrase: str, texts: dict[Path, str]) -> None:
    unclear = [str(path.relative_to(ROOT)) for path, text in texts.items() if phrase in text]
    assert not unclear, f"say {PLAINER[phrase]!r} instead"
