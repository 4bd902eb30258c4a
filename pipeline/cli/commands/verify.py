"""`kvlens verify`: the tables against a recount of the log."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from connectors.process.addresses import printable
from connectors.process.collector import GC_THRESHOLD
from pipeline.cli.groups import examples
from pipeline.cli.numbers import Amount
from pipeline.cli.options import config_option, load_running, running_directory_option
from pipeline.cli.terminal import fitted, redraws

if TYPE_CHECKING:
    from pipeline.verify.findings import Findings
    from schemas.settings import Settings

EXIT_CODES = {"equal": 0, "different": 1, "late": 3}
CANNOT = 2
_OFFSET = re.compile(r"[0-9]{1,18}")
LEAST_PATIENCE = 30.0
"""Seconds; brokers abort transactions of a killed worker after 12 s, and look for them every 10 s."""


@click.command(
    epilog=examples("kvlens verify --data-dir .kvlens/demo", "kvlens verify --config kvlens.toml --json")
)
@config_option
@running_directory_option
@click.option(
    "--from-recording",
    "recordings",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Compare with a recording of engines instead of the log; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.option(
    "--until",
    default="now",
    show_default=True,
    metavar="now|OFFSET",
    help="Ignore records at or after this offset of each partition.",
)
@click.option(
    "--patience",
    type=Amount(0),
    metavar="SECONDS",
    help="Time for minutes, hours and open transactions to catch up; by default twice "
    "`worker.rollup_seconds` and 5 s, at least 30 s.",
)
def verify(
    config: Path | None,
    data_dir: Path | None,
    recordings: tuple[Path, ...],
    as_json: bool,
    until: str,
    patience: float | None,
) -> int:
    """Check the tables: compute each again from the log, and compare it row by row.

    Exit code: 0 equal, 1 differences, 2 could not compare, 3 late: nothing differs, but some rows could
    not be compared yet, with the reason.
    """
    from connectors.process.errors import OperatorError
    from pipeline.cli.failures import Failure
    from pipeline.verify import report
    from pipeline.verify.against_log import check_log
    from pipeline.verify.progress import Progress

    if recordings and (until != "now" or patience is not None):
        raise click.UsageError("--until and --patience are for the log; --from-recording reads none")
    settings = load_running(config, data_dir).settings
    if patience is None:
        patience = max(2 * settings.worker.rollup_seconds + 5, LEAST_PATIENCE)
    try:
        if recordings:
            findings = _from_recordings(settings, recordings)
        else:
            gc.set_threshold(GC_THRESHOLD)
            now = datetime.now(timezone.utc)
            shown = sys.stderr if redraws(sys.stderr) else None
            progress = Progress(shown, fitted=lambda line: fitted(line, "", sys.stderr))
            findings = asyncio.run(
                check_log(settings, now, until=_offset(until), patience=patience, progress=progress)
            )
    except (OSError, OperatorError) as error:
        failure = Failure(str(error))
        failure.exit_code = CANNOT
        raise failure from error
    if as_json:
        click.echo(json.dumps(report.as_json(findings)))
    else:
        for line in report.as_text(findings):
            click.echo(printable(line))
    return EXIT_CODES[findings.verdict]


def _from_recordings(settings: Settings, recordings: tuple[Path, ...]) -> Findings:
    from pipeline.recordings.events import RecordedEvents
    from pipeline.verify.against_recording import check_recorded
    from pipeline.verify.findings import Findings
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
    if not _OFFSET.fullmatch(until):
        raise click.BadParameter("expected now or an offset", param_hint="--until")
    return int(until)
