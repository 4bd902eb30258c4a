"""`kvlens serve`: the boards in a browser."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from connectors.process.addresses import without_secrets
from connectors.process.stopping import done_before
from pipeline.cli.examples import examples
from pipeline.cli.options import config_option, load_settings
from schemas.settings import ClickHouse, Settings


@click.command(
    epilog=examples(
        "kvlens serve --config kvlens.toml",
        "KVLENS_PAGE__PORT=9000 kvlens serve",
    )
)
@config_option
def serve(config: Path | None) -> None:
    """Show the boards in a browser, without Grafana.

    The settings page.host and page.port say where. It runs until you stop it.
    It reads ClickHouse only and needs neither Kafka nor the worker. It has no login, and listens on 127.0.0.1
    unless told otherwise. Without ClickHouse it says why, once, and shows the boards as soon as it answers.
    """
    asyncio.run(_serve(load_settings(config).settings))


async def _serve(settings: Settings) -> None:
    from pipeline.dashboards.page.answers import Answers
    from pipeline.dashboards.page.server import Page

    page = Page(Answers(settings.clickhouse), settings.page.host, settings.page.port)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await page.start()
    try:
        click.echo(f"boards are on {page.url}")
        if await done_before(stopped, asyncio.create_task(_tell_unless_usable(settings.clickhouse))):
            await stopped.wait()
    finally:
        await page.stop()


async def _tell_unless_usable(store: ClickHouse) -> None:
    """Look once at what every board needs, so that a wrong password is told where it was given."""
    from connectors.process.leaving import aside
    from pipeline.clickhouse.migrations import missing
    from pipeline.errors import PipelineError, TablesMissing

    try:
        # A store that hangs holds no exit so.
        if lacking := await aside(lambda: missing(store)):
            raise TablesMissing(store.database, lacking)
    except PipelineError as error:
        click.echo(f"kvlens: {without_secrets(str(error))}", err=True)
