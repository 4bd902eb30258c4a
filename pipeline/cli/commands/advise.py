"""`kvlens advise`: what to do about the fleet's caches, and what it is worth."""

from __future__ import annotations

import re
import time
from pathlib import Path

import click
import msgspec

from connectors.process.addresses import printable
from pipeline.cli.groups import examples
from pipeline.cli.options import config_option, load_running, running_directory_option
from pipeline.cli.terminal import width

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST = 366 * 86400
_NUMBER = re.compile(r"[0-9]{1,12}")


class _Range(click.ParamType):
    """A number with its unit, such as 15m, as seconds."""

    name = "RANGE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value)
        number, unit = text[:-1], text[-1:]
        if not _NUMBER.fullmatch(number) or unit not in _UNITS:
            self.fail(f"{text!r} is not a number with a unit, such as 15m, 6h or 7d", param, ctx)
        seconds = int(number) * _UNITS[unit]
        if not _UNITS["m"] <= seconds <= _LONGEST:
            self.fail(f"{text} is not between 1m and 366d", param, ctx)
        return seconds


@click.command(
    epilog=examples(
        "kvlens advise --data-dir .kvlens/demo --range 15m",
        "kvlens advise --config kvlens.toml --range 7d --json",
    )
)
@config_option
@running_directory_option
@click.option(
    "--range",
    "seconds",
    type=_Range(),
    default="1h",
    show_default=True,
    help="How far back to look; compared with the preceding time of equal length.",
)
@click.option("--model", "models", multiple=True, metavar="NAME", help="Only this model; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def advise(
    config: Path | None, data_dir: Path | None, seconds: int, models: tuple[str, ...], as_json: bool
) -> None:
    """Show what to do first, and what it is worth.

    At most seven findings, the one that saves most prefill first, each with its bounds, what to do, and where
    the figures are. docs/advice.md explains how far they hold.
    """
    settings = load_running(config, data_dir).settings
    from pipeline.advice.reading import latest_range, read_advice
    from pipeline.advice.text import as_text
    from pipeline.clickhouse.client import connected

    with connected(settings.clickhouse) as client:
        start, end = latest_range(time.time(), seconds)
        advice = read_advice(client, settings.clickhouse.database, start, end, models)
    if as_json:
        click.echo(msgspec.json.encode(advice).decode())
        return
    for line in as_text(advice, width()):
        click.echo(printable(line))
