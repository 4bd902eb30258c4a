"""`kvlens state`: what the agents keep in checkpoints."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.cli.groups import Group, examples
from pipeline.cli.options import config_option, load_settings
from pipeline.cli.progress_line import ProgressLine

if TYPE_CHECKING:
    from pipeline.rebuild.discard import Discarded
    from schemas.settings import Settings


@click.group(cls=Group, epilog=examples("kvlens state rebuild --config kvlens.toml"))
def state() -> None:
    """Manage what the agents keep in checkpoints."""


@state.command(
    epilog=examples("kvlens state rebuild --config kvlens.toml", "kvlens state rebuild --yes --no-wait")
)
@config_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--wait/--no-wait", default=True, help="Follow the workers until they are done.", show_default=True
)
def rebuild(config: Path | None, yes: bool, wait: bool) -> None:
    """Discard the agents' checkpoints, to compute everything again.

    All workers must be stopped; those that start afterwards read the log from its beginning. The residency
    topic is emptied, because every change is announced again. Rows of ClickHouse stay, and are written over
    as far as the log reaches back.
    """
    from pipeline.rebuild.recomputing import follow

    settings = load_settings(config).settings
    discarded = asyncio.run(_discarded(settings, yes))
    click.echo(f"{discarded.checkpoints} checkpoint records discarded; start the workers now")
    if wait:
        with ProgressLine(sys.stdout, logged=True) as progress:
            asyncio.run(
                follow(settings, discarded, lambda standing: progress.step(f"computing again: {standing}"))
            )
        click.echo("everything is computed again; `kvlens verify` compares it with the log")


async def _discarded(settings: Settings, yes: bool) -> Discarded:
    from pipeline.rebuild.discard import opened_rebuild

    async with opened_rebuild(settings) as rebuilding:
        await rebuilding.refuse_members()
        since = await rebuilding.exact_from()
        if since is None:
            click.echo("the log has every event since it was made: all figures are computed again")
        else:
            click.echo(
                f"the log begins at {since:%Y-%m-%d %H:%M:%S} UTC: figures before stay as they are; those "
                "since are computed again, and sources that began before are partial until their engine "
                "restarts or clears its cache"
            )
        if not yes:
            click.confirm("discard the checkpoints and the residency topic?", abort=True)
        # The answer may have taken a while.
        await rebuilding.refuse_members()
        return await rebuilding.discard()
