"""`kvlens doctor`: what is wrong with a running fleet, and what to do."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from pipeline.cli.groups import examples
from pipeline.cli.numbers import Amount
from pipeline.cli.options import config_option, load_running, running_directory_option
from pipeline.cli.terminal import width

_MIN_SECONDS = 1.0


@click.command(
    epilog=examples("kvlens doctor --data-dir .kvlens/demo", "kvlens doctor --config kvlens.toml --json")
)
@config_option
@running_directory_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.option(
    "--timeout",
    "seconds",
    type=Amount(_MIN_SECONDS),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long broker and store may take to answer.",
)
def doctor(config: Path | None, data_dir: Path | None, as_json: bool, seconds: float) -> int:
    """Check a running installation: what is wrong, and what to do about it.

    Exit code: 0 healthy, 1 problems, 2 no problem seen, but it could not look at everything.
    """
    from pipeline.local.run_file import read_on_purpose

    on_purpose = read_on_purpose(data_dir)
    settings = load_running(config, data_dir).settings
    from pipeline.doctor import report
    from pipeline.doctor.diagnosis import diagnose
    from pipeline.doctor.examine import examine
    from pipeline.doctor.finding import exit_code

    facts = asyncio.run(examine(settings, seconds))
    findings = diagnose(facts, on_purpose)
    if as_json:
        click.echo(json.dumps(report.as_json(facts, findings)))
    else:
        for line in report.as_text(facts, findings, width()):
            click.echo(line)
    return exit_code(findings)
