"""`kvlens analyze`: what the engines of a recording held, offline."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from pipeline.cli.failures import reading, warn
from pipeline.cli.groups import examples
from pipeline.cli.terminal import width
from pipeline.text_table import text_table

_COLUMNS = (
    "source",
    "medium",
    "group",
    "entries",
    "blocks",
    "tokens",
    "stored",
    "removed",
    "cleared",
    "trust",
)


@click.command(epilog=examples("kvlens analyze engine.kvrec", "kvlens analyze engine.kvrec --json"))
@click.argument("files", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the rows as a JSON array instead of a table.")
@click.option(
    "--every-batch", is_flag=True, help="Print one JSON line per sequence number: entries and blocks."
)
def analyze(files: tuple[Path, ...], as_json: bool, every_batch: bool) -> None:
    """Show what the engines of a recording held, without Kafka or ClickHouse.

    Per source, medium and group: physical entries, distinct blocks, tokens, and what was stored, removed
    and cleared, in physical blocks.
    """
    if as_json and every_batch:
        raise click.UsageError("--every-batch prints JSON lines already; leave out --json")
    from pipeline.recordings.analysis import Analysis

    analyses: list[Analysis] = []
    for file in files:
        with reading(file):
            analysis = Analysis(file)
            for line in analysis.every_batch() if every_batch else ():
                click.echo(json.dumps(line))
            analysis.finish()
        if analysis.torn:
            warn(f"{file}: ends inside a frame; everything before it was read")
        analyses.append(analysis)
    if every_batch:
        return
    if as_json:
        click.echo(json.dumps([row for analysis in analyses for row in analysis.summary()], indent=2))
    else:
        _print_table(row for analysis in analyses for row in analysis.summary())


def _print_table(pools: Iterable[dict[str, Any]]) -> None:
    rows = [
        (
            f"{pool['replica']}/{pool['dp_rank']}",
            pool["medium"],
            str(pool["group_idx"]),
            *(f"{pool[key]:,}" for key in ("physical", "distinct", "tokens", "stored", "removed", "cleared")),
            pool["trust"],
        )
        for pool in pools
    ]
    for line in text_table((_COLUMNS, *rows), right=range(3, 9), width=width(), expendable=(3, 8, 2)):
        click.echo(line)
