"""`kvlens connect`: engines -> Kafka."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from pipeline.cli.options import DEFAULT_FILE, config_option, load_settings, require_engines
from pipeline.settings.loading import ConfigurationError
from schemas.settings import Settings


@click.command
@config_option
def connect(config: Path | None) -> None:
    """Publish the event streams of the configured engines to Kafka, until told to stop.

    SIGINT and SIGTERM stop it gracefully: first it publishes what it received, for at most
    connector.drain_seconds.
    """
    settings = load_settings(config).settings
    require_engines(settings)
    import uvloop

    from pipeline.cli.logs import configure_logs

    configure_logs()
    uvloop.run(_run(settings, config or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)))


async def _run(settings: Settings, path: Path | None) -> None:
    from connectors.connector import run
    from connectors.discovery.file import SettingsFile, SettingsUnreadable

    def read() -> Settings:
        try:
            return load_settings(path).settings
        except ConfigurationError as error:
            raise SettingsUnreadable(str(error)) from error

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await run(settings, stop=stop, file=None if path is None else SettingsFile(path, read))
