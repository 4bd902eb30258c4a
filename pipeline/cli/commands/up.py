"""`kvlens up`: everything for the configured engines on this machine."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from connectors.process.addresses import printable
from pipeline.cli.failures import stopped_by_signals
from pipeline.cli.groups import examples
from pipeline.cli.options import (
    config_option,
    data_directory_option,
    load_settings,
    require_engines,
    require_tokens,
    settings_file,
)
from pipeline.cli.progress_line import ProgressLine
from pipeline.cli.terminal import width

_CHECK_SECONDS = 0.2
_RANGE_SECONDS = 3600
_ASKED_SECONDS = 30.0
"""How often the store is asked for the advice."""
_SHOWN_SECONDS = 600.0
"""How often the terminal shows it."""


@click.command(
    epilog=examples(
        "kvlens up --config kvlens.toml", "kvlens doctor --data-dir .kvlens/up   # is everything working?"
    )
)
@config_option
@data_directory_option(".kvlens/up")
def up(config: Path | None, data_dir: Path) -> None:
    """Run everything for your engines on this machine.

    It starts an embedded Kafka and ClickHouse unless the settings name kafka.bootstrap_servers and
    clickhouse.url. It restarts processes that die, and runs until you stop it.
    """
    loaded = load_settings(config)
    require_engines(loaded.settings)
    require_tokens(loaded.settings, "page", "index", "lmcache")
    from pipeline.advice.text import as_text
    from pipeline.local.advice_watch import AdviceWatch
    from pipeline.local.directory import DataDirectory, write_for_owner_alone
    from pipeline.local.processes.supervisor import Supervisor
    from pipeline.local.stack import Stack

    stopping = False

    def stop() -> None:
        nonlocal stopping
        stopping = True

    write_for_owner_alone()
    with DataDirectory(data_dir) as directory:
        supervisor = Supervisor(click.echo)
        progress = ProgressLine(sys.stdout, logged=True)
        try:
            with progress:
                stack = Stack(loaded, settings_file(config), directory, supervisor, progress)
                stack.start()
            for name, url in stack.urls.items():
                click.echo(f"  {name}: {url}")
            click.echo(f"  logs: {directory.logs}")
            with stopped_by_signals(stop):
                click.echo("running; Ctrl-C stops it")
                watch = AdviceWatch(stack.settings.clickhouse, _RANGE_SECONDS, _ASKED_SECONDS)
                shown_at = -_SHOWN_SECONDS
                while not stopping:
                    time.sleep(_CHECK_SECONDS)
                    supervisor.check()
                    advice = watch.latest
                    if advice is not None and advice.answer and time.monotonic() - shown_at >= _SHOWN_SECONDS:
                        shown_at = time.monotonic()
                        lines = as_text(advice, width(), stack.urls["page"])
                        click.echo("\n".join(["", *map(printable, lines)]))
            watch.close()
        finally:
            with progress:
                progress.step("stopping")
                supervisor.stop()
