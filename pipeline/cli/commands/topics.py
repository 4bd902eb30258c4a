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
    """Create missing topics with their configuration; existing topics stay as they are."""
    settings = load_settings(config).settings
    from pipeline.kafka.topics import apply

    asyncio.run(apply(settings, click.echo))


@topics.command("list")
@config_option
def list_topics(config: Path | None) -> None:
    """Print the topics and their state in the cluster."""
    settings = load_settings(config).settings
    from pipeline.kafka.topics import describe

    for topic in asyncio.run(describe(settings)):
        state = f"{topic.partitions} partitions, {topic.replication_factor} replicas"
        if not topic.partitions:
            state = "does not exist; `kvlens topics apply` creates it"
        elif topic.partitions != topic.wanted_partitions:
            state += f" ({topic.wanted_partitions} partitions are wanted)"
        click.echo(f"{topic.name}  {state}")
