"""`kvlens work`: Kafka -> ClickHouse."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.cli.groups import examples
from pipeline.cli.options import config_option, load_settings, log_level_option


@click.command(epilog=examples("kvlens work --config kvlens.toml", "kvlens work --log-level debug"))
@config_option
@log_level_option
def work(config: Path | None, log_level: str) -> None:
    """Turn the Kafka log into ClickHouse tables.

    It runs until you stop it.
    Several workers share the partitions of the log.
    """
    settings = load_settings(config).settings
    from pipeline.cli.logs import configure_logs
    from pipeline.worker.lifecycle import run

    configure_logs(log_level)
    run(settings)
