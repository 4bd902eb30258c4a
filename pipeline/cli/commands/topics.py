"""`kvlens topics`: the Kafka topics."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path

import click

from pipeline.cli.groups import Group, examples
from pipeline.cli.options import config_option, load_settings


@click.group(cls=Group, epilog=examples("kvlens topics apply", "kvlens topics list --json"))
def topics() -> None:
    """Create, list or copy the Kafka topics."""


@topics.command("apply", epilog=examples("kvlens topics apply --config kvlens.toml"))
@config_option
def apply_topics(config: Path | None) -> None:
    """Create the topics that are missing; existing ones stay as they are."""
    settings = load_settings(config).settings
    from pipeline.kafka.topics import apply

    asyncio.run(apply(settings, click.echo))


@topics.command("copy", epilog=examples("kvlens topics copy --from kvlens --config more.toml"))
@config_option
@click.option(
    "--from", "prefix", required=True, metavar="PREFIX", help="Prefix of the topics that have the log."
)
def copy_topics(config: Path | None, prefix: str) -> None:
    """Copy the log into topics with another number of partitions.

    The old topic may have got more partitions since records were written: all come along, in order. Settings
    are those of the new installation: its prefix, group, partitions and database. No connector may
    write there yet. Run again, it continues where it ended: once while the old connectors run, and once
    more when they are stopped.
    """
    settings = load_settings(config).settings
    if prefix == settings.kafka.topic_prefix:
        raise click.UsageError("--from is kafka.topic_prefix itself: name the topics that have the log")
    from pipeline.kafka.copying import copy_events

    done = asyncio.run(copy_events(settings, prefix, click.echo))
    click.echo(f"{done.copied:,} records copied")
    if done.lost:
        click.echo(f"{done.lost:,} records were gone, by retention, before they were copied")
    if done.misplaced:
        click.echo(
            f"{done.misplaced:,} records left out: with no number of partitions up to the present one would "
            "their keys be where they are, so no connector wrote them"
        )
    if done.came:
        click.echo(f"{done.came:,} came meanwhile: stop the connectors that write them, and copy again")
    else:
        click.echo("none came meanwhile: if no connector writes there any more, start the new ones")


@topics.command("list", epilog=examples("kvlens topics list", "kvlens topics list --json"))
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array instead of text.")
def list_topics(config: Path | None, as_json: bool) -> None:
    """Print the topics and what the cluster has of each."""
    settings = load_settings(config).settings
    from pipeline.kafka.topics import describe

    found = asyncio.run(describe(settings))
    if as_json:
        click.echo(json.dumps([asdict(topic) for topic in found], indent=2))
        return
    for topic in found:
        state = f"{topic.partitions} partitions, {topic.replication_factor} replicas"
        if topic.hidden:
            state = "may not be seen by this user; give it Describe (docs/acls.md)"
        elif not topic.partitions:
            state = "does not exist; `kvlens topics apply` creates it"
        elif topic.partitions != topic.wanted_partitions:
            state += f" ({topic.wanted_partitions} partitions are wanted)"
        click.echo(f"{topic.name}  {state}")
