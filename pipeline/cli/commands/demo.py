"""`kvlens demo`: the whole pipeline on this machine, under a small simulated fleet."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import click

from pipeline.cli.failures import Failure, stopped_by_signals
from pipeline.cli.groups import examples
from pipeline.cli.numbers import Amount
from pipeline.cli.options import data_directory_option, load_settings
from pipeline.cli.progress_line import ProgressLine
from pipeline.cli.terminal import redraws
from pipeline.settings.loading import DEFAULT, ConfigurationError, load

_REDRAW_SECONDS = 2.0
_PLAIN_SECONDS = 10.0
_CLEAR = "\x1b[H\x1b[J"
_ITS_OWN = {
    ("replicas",): "engines",
    ("discovery", "dns"): "engines",
    ("discovery", "bind"): "engines",
    ("discovery", "kubernetes"): "engines",
    ("kafka", "bootstrap_servers"): "Kafka",
    ("clickhouse", "url"): "ClickHouse",
}


@click.command(epilog=examples("kvlens demo", "kvlens demo --seconds 60 --json"))
@data_directory_option(".kvlens/demo")
@click.option("--seconds", type=Amount(0, min_open=True), help="Stop this many seconds after start-up.")
@click.option(
    "--json", "as_json", is_flag=True, help="With --seconds: print one JSON summary on stdout only."
)
def demo(data_dir: Path, seconds: float | None, as_json: bool) -> None:
    """Run kvlens with seven simulated engines on this machine, and show what they hold.

    It brings its own Kafka and ClickHouse, and the boards as a page. Everything listens on 127.0.0.1 only,
    on ports 9092 (Kafka), 8123 (ClickHouse), 8080 (page) and 8095 (index) where they are free, and on others
    where not; KVLENS_PAGE__PORT and KVLENS_INDEX__PORT choose those of page and index.
    The data stay in the data directory, and the next demo continues with them.
    """
    if as_json and seconds is None:
        raise click.UsageError("--json needs --seconds")
    # Standard output is for the summary alone.
    progress = ProgressLine(sys.stderr if as_json else sys.stdout, logged=True)
    begun = time.monotonic()
    with progress:
        progress.step("loading kvlens")
        from pipeline.local.demo.demo import Demo
        from pipeline.local.directory import DataDirectory, write_for_owner_alone

    write_for_owner_alone()
    with DataDirectory(data_dir) as directory:
        _require_nothing_of_a_real_fleet()
        the_demo = Demo(directory, progress)
        try:
            with progress:
                config = the_demo.start_fleet()
                the_demo.start(load_settings(config), config)
            ready_seconds = time.monotonic() - begun
            terminal = redraws(sys.stdout) and not as_json
            with stopped_by_signals(the_demo.stop):
                progress.tell(f"ready after {ready_seconds:.1f} s: open {the_demo.page}; Ctrl-C stops it")
                for moment in the_demo.moments(seconds, _REDRAW_SECONDS if terminal else _PLAIN_SECONDS):
                    if terminal:
                        click.echo(_CLEAR + moment.screen)
                    else:
                        progress.tell(moment.plain)
            summary = the_demo.summary(ready_seconds) if seconds is not None else None
        finally:
            with progress:
                progress.step("stopping")
                the_demo.close()
        progress.tell(f"stopped; the next demo continues with the data in {data_dir}")
    if summary is None:
        return
    if as_json:
        click.echo(json.dumps(summary))
    if not summary["rows"]["occupancy_10s"] or not summary["events"]:
        raise Failure(f"no event arrived within {seconds:g} s; see the logs in {directory.logs}")


def _require_nothing_of_a_real_fleet() -> None:
    """Raise ConfigurationError for a variable that would mix the demo's data with those of other engines."""
    given = load(None, "", os.environ, lambda name: Path(name).read_text("utf-8"))
    for path, own in _ITS_OWN.items():
        if (variable := given.origin(*path)) != DEFAULT:
            raise ConfigurationError(variable, f"the demo brings its own {own}; unset it")
