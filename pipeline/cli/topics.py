"""`kvlens topics`: the Kafka topics."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from pipeline.cli.options import config_option, load_settings


@click.group
def topics() -> None:
    """Create or list the Kafka topics of schemas/topics.toml."""


@topics.command("apply")
@config_option
def apply_topics(config: Path | None) -> None:
    """Create missing topics and set their configuration; partition counts of existing ones never change."""
    settings = load_settings(config).settings
    from pipeline.topics import apply

    asyncio.run(apply(settings, click.echo))
