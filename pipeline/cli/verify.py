"""`kvlens verify`: the tables against a recount of the log."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.cli.options import config_option, load_settings

if TYPE_CHECKING:
    from pipeline.verify.findings import Findings
    from schemas.settings import Settings

EQUAL = 0
DIFFERENT = 1
CANNOT = 2


@click.command
@config_option
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Data directory of a `kvlens demo` or `kvlens up` that runs: its addresses and its engines.",
)
@click.option(
    "--from-recording",
    "recordings",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Compare with what a recording of engines says instead of the log; may be given several times.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
@click.option(
    "--until",
    default="now",
    show_default=True,
    metavar="now|OFFSET",
    help="Leave records from this offset of each partition out.",
)
@click.option(
    "--patience",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="How long minutes and hours may take to follow; twice `worker.rollup_seconds` and 5 s if absent.",
)
def verify(
    config: Path | None,
    data_dir: Path | None,
    recordings: tuple[Path, ...],
    as_json: bool,
    until: str,
    patience: float | None,
) -> int:
    """Compute every table once more from the log, plainly, and compare it row by row with ClickHouse.

    Exit code: 0 equal, 1 differences, 2 could not compare.
    """
    from pipeline.cli.failures import Failure
    from pipeline.errors import PipelineError
    from pipeline.recording import RecordingError
    from pipeline.verify import report, run

    if data_dir is not None:
        from pipeline.local.running import read_running

        config, environment = read_running(data_dir, config)
        settings = load_settings(config, environment).settings
    else:
        settings = load_settings(config).settings
    if patience is None:
        patience = 2 * settings.worker.rollup_seconds + 5
    try:
        if recordings:
            findings = _from_recordings(settings, recordings)
        else:
            now = datetime.now(timezone.utc)
            findings = asyncio.run(run.verify(settings, now, until=_offset(until), patience=patience))
    except (OSError, PipelineError, RecordingError) as error:
        failure = Failure(str(error))
        failure.exit_code = CANNOT
        raise failure from error
    if as_json:
        click.echo(json.dumps(report.as_json(findings)))
    else:
        for line in report.as_text(findings):
            click.echo(line)
    return EQUAL if findings.equal else DIFFERENT


def _from_recordings(settings: Settings, recordings: tuple[Path, ...]) -> Findings:
    from pipeline.local.recorded_events import RecordedEvents
    from pipeline.verify.findings import Findings
    from pipeline.verify.recorded import check_recorded
    from pipeline.verify.store import StoredTables

    findings = Findings()
    tables = StoredTables(settings.clickhouse)
    try:
        for file in recordings:
            check_recorded(RecordedEvents(file), tables, settings.worker, findings)
    finally:
        tables.close()
    return findings


def _offset(until: str) -> int | None:
    if until == "now":
        return None
    if not until.isdecimal():
        raise click.BadParameter("expected now or an offset", param_hint="--until")
    return int(until)
