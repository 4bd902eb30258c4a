"""`kvlens work`: Kafka -> ClickHouse."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.cli.options import config_option, load_settings


@click.command
@config_option
def work(config: Path | None) -> None:
    """Turn the Kafka log into ClickHouse tables, until told to stop.

    Several workers share the partitions of the log.
    """
    settings = load_settings(config).settings
    from pipeline.cli.logs import configure_logs
    from pipeline.worker.lifecycle import run

    configure_logs()
    run(settings)
