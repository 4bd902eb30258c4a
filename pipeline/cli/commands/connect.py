"""`kvlens connect`: engines -> Kafka."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.cli.groups import examples
from pipeline.cli.options import (
    config_option,
    load_settings,
    log_level_option,
    require_engines,
    require_tokens,
    settings_file,
)
from pipeline.settings.loading import ConfigurationError
from schemas.settings import Settings


@click.command(
    epilog=examples(
        "kvlens connect --config kvlens.toml", "KVLENS_CONNECTOR__SHARD=0/2 kvlens connect   # one of two"
    )
)
@config_option
@log_level_option
def connect(config: Path | None, log_level: str) -> None:
    """Read the KV-cache events of your engines and publish them to Kafka.

    It runs until you stop it.
    SIGTERM ends it gracefully: first it publishes what it received, for at
    most connector.drain_seconds. SIGINT does, too, within three seconds.
    """
    settings = load_settings(config).settings
    require_engines(settings)
    import uvloop

    from pipeline.cli.logs import configure_logs

    require_tokens(settings, "lmcache")
    configure_logs(log_level)
    uvloop.run(_run(settings, settings_file(config)))


async def _run(settings: Settings, path: Path | None) -> None:
    from connectors.connector import run
    from connectors.discovery.file import SettingsFile, SettingsUnreadable
    from connectors.process.leaving import leave
    from connectors.process.stopping import Stop

    def read() -> Settings:
        try:
            return load_settings(path).settings
        except ConfigurationError as error:
            raise SettingsUnreadable(str(error)) from error

    stop = Stop()
    stop.at_signals()
    await run(settings, stop=stop, file=None if path is None else SettingsFile(path, read))
    # Closing a uvloop waits for pending DNS look-ups, and a resolver may take half a minute.
    leave(0)
