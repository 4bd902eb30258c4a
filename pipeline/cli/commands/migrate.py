"""`kvlens migrate`: the ClickHouse tables."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.cli.groups import examples
from pipeline.cli.options import config_option, load_settings


@click.command(epilog=examples("kvlens migrate --config kvlens.toml"))
@config_option
def migrate(config: Path | None) -> None:
    """Create the ClickHouse database and tables, or bring them up to date."""
    settings = load_settings(config).settings
    from pipeline.clickhouse.migrations import apply

    applied = apply(settings, click.echo)
    click.echo(f"{len(applied)} applied" if applied else "up to date")
