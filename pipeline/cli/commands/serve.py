"""`kvlens serve`: the boards in a browser."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from pipeline.cli.examples import examples
from pipeline.cli.options import config_option, load_settings
from schemas.settings import Settings


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
    unless told otherwise.
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
        await stopped.wait()
    finally:
        await page.stop()
