"""Words that first readers stumbled over are nowhere in what users read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pipeline.cli.main import kvlens
from tests.support.checkout import ROOT

FOLDERS = ("connectors", "deploy", "docs", "pipeline", "schemas")
AT_THE_ROOT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
SUFFIXES = {".css", ".html", ".js", ".json", ".md", ".py", ".sql", ".toml", ".yaml"}
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
    "a running connector follows three origins": "how a running connector learns of engines",
    "until it is put right": "until you correct it",
    "the regret:": "the time from eviction to re-use:",
    "unlike the other": "differently from the other",
}
"""{what nobody understood: what says it better}."""
PATTERNS = {
    r"\bli(fe|ves) of (an|the|these) engines?\b": "engine session",
    r"\b(new|next|last|old|past|present|same|one|of this|each) li(fe|ves)\b": "session",
    r"\bbe had\b": "is missing, can be reached",
    r"\bstands? still\b": "makes no progress",
    r"\blikewise\b": "the same text again",
    r"\b(figures|events|traffic|counters|nothing|nobody|nothing seen|nothing else) tells?\b": "show, name",
    r"\b(is|are|was|were) told\b": "is reported, is distinguished, gets an error",
    r"`kvlens doctor` tells": "`kvlens doctor` shows",
    r"\bat th(at|e) moment\b": "when, at that time, then",
    r"\bwanted again\b": "used again",
    r"\banew\b": "again",
    r"\bpictures? of\b": "chart, screenshot",
}
"""{what a colleague would not say: what to write}."""


def files() -> list[Path]:
    """Return what users and operators may read, the page and generated files included."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    return [*AT_THE_ROOT, ROOT / "Makefile", *found]


def prose() -> Iterator[tuple[str, str]]:
    """Yield (where, text) of pages, help, boards and the texts in code: errors, logs, findings, panels."""
    for path in [*sorted((ROOT / "docs").rglob("*.md")), *AT_THE_ROOT]:
        yield path.name, path.read_text("utf-8")
    yield "Makefile", "\n".join(re.findall(r"## .+", (ROOT / "Makefile").read_text("utf-8")))
    yield from help_of(kvlens, "kvlens")
    for folder in ("connectors", "pipeline"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), "\n".join(constants(ast.parse(path.read_text("utf-8"))))


def help_of(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """Yield (command, its help and that of its options), of all commands under this one."""
    options = [option.help or "" for option in command.params if isinstance(option, click.Option)]
    yield name, "\n".join([command.help or "", *options])
    if isinstance(command, click.Group):
        context = click.Context(command)
        for part in command.list_commands(context):
            other = command.get_command(context, part)
            assert other is not None
            yield from help_of(other, f"{name} {part}")


def constants(tree: ast.AST) -> Iterator[str]:
    """Yield what code has to say: its texts of several words but for docstrings and SQL."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        text = node.value
        if isinstance(text, str) and " " in text and not re.search(r"\b(SELECT|FROM|AS)\b", text):
            yield text


@pytest.fixture(scope="module")
def spoken() -> dict[str, str]:
    return {where: re.sub(r"\s+", " ", text).lower() for where, text in prose()}


@pytest.fixture(scope="module")
def texts() -> dict[Path, str]:
    return {path: re.sub(r"\s+", " ", path.read_text("utf-8")).lower() for path in files()}


def test_what_users_read_is_found(texts: dict[Path, str]) -> None:
    assert {path.suffix for path in texts} >= SUFFIXES - {".toml"}


@pytest.mark.parametrize("phrase", PLAINER)
def test_plainer_words_are_used(phrase: str, texts: dict[Path, str]) -> None:
    unclear = [str(path.relative_to(ROOT)) for path, text in texts.items() if phrase in text]
    assert not unclear, f"say {PLAINER[phrase]!r} instead"


def test_prose_of_every_kind_is_found(spoken: dict[str, str]) -> None:
    assert "re-record the demo's terminal" in spoken["Makefile"]
    assert "boards" in spoken["kvlens serve"]
    assert "new sessions of these engines begin" in spoken["pipeline/doctor/source_checks.py"]
    assert "no stream is known to hash differently" in spoken["pipeline/dashboards/boards/health.py"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_colleague_would_say_it_so(pattern: str, spoken: dict[str, str]) -> None:
    odd = {where: found[0] for where, text in spoken.items() if (found := re.search(pattern, text))}
    assert not odd, f"write {PATTERNS[pattern]!r} instead"
