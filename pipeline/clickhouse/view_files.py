"""The views of `schemas/clickhouse/views`: the order to make them in, and which have changed. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

from pipeline.clickhouse.sql_files import DIRECTORY, migrations, split, view_texts
from pipeline.clickhouse.views import for_readers

RECORDED = "views/"
"""Prefix of the names of views in the table `schema_migrations`."""

_MADE = re.compile(r"^CREATE VIEW \{database\}\.(\w+) AS", re.M)
_NAMED = re.compile(r"\{database\}\.(\w+)")


@dataclass(frozen=True)
class View:
    """A view as the store has it: its name, the statement that makes it, and a digest (hex).

    The digest covers all that determines its columns and rows: its text, the views it reads, the tables.
    """

    name: str
    text: str
    sha256: str

    @property
    def recorded(self) -> str:
        """Its name in the table `schema_migrations`."""
        return RECORDED + self.name


def views(directory: Path = DIRECTORY) -> list[View]:
    """Return all views, each after those that it reads."""
    tables = "".join(migration.sha256 for migration in migrations(directory))
    return in_order(dict(_made(view_texts(directory))), tables)


def in_order(texts: Mapping[str, str], tables: str) -> list[View]:
    """Return the views of texts by name, each after those it reads; `tables` is a digest of the tables."""
    reads = {name: _reads(name, text) & texts.keys() for name, text in texts.items()}
    digests: dict[str, str] = {}
    for name in TopologicalSorter({name: sorted(reads[name]) for name in sorted(reads)}).static_order():
        parts = (tables, texts[name], *(digests[each] for each in sorted(reads[name])))
        digests[name] = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return [View(name, texts[name], sha256) for name, sha256 in digests.items()]


def removed(applied: Iterable[str], now: Iterable[View]) -> list[str]:
    """Return the names of the applied views that no longer exist."""
    kept = {view.recorded for view in now}
    return sorted(
        name.removeprefix(RECORDED) for name in applied if name.startswith(RECORDED) and name not in kept
    )


def _made(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        for piece in split(text):
            for statement in for_readers(piece):
                found = _MADE.search(statement)
                if found is None:
                    raise ValueError(f"no statement that makes a view: {statement[:80]}")
                yield found[1], statement


def _reads(name: str, text: str) -> set[str]:
    return set(_NAMED.findall(text)) - {name}
