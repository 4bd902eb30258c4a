"""`kvlens at`: who held what at a time in the past."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli.groups import examples
from pipeline.cli.logs import configure_logs
from pipeline.cli.numbers import Moment
from pipeline.cli.options import config_option, load_running, running_directory_option
from pipeline.cli.terminal import width
from pipeline.text_table import text_table

if TYPE_CHECKING:
    from pipeline.index.following.past import Past


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog=examples(
        "kvlens at 2026-11-23T10:00:00",
        "kvlens at -3600 --against -60   # an hour ago, and a minute ago",
        "kvlens at -600 --model qwen3-32b --hash 9151 --hash -77   # a prompt",
    ),
)
@click.argument("moment", metavar="TIME", type=Moment())
@config_option
@running_directory_option
@click.option("--against", type=Moment(), help="A second time: what came and what went between the two.")
@click.option("--model", default="", help="With --hash: the model of the prompt.")
@click.option(
    "--hash",
    "hashes",
    multiple=True,
    help="A block of a prompt, the first one first; repeat it. Digits alone are a number, 0x a digest.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of tables.")
def at(
    moment: float,
    config: Path | None,
    data_dir: Path | None,
    against: float | None,
    model: str,
    hashes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show which replica held what at a time in the past.

    TIME is ISO 8601, in UTC unless it says otherwise, or -SECONDS from now. The answer comes from the log
    alone, read from its oldest record up to that time, so it reaches back as far as the log does.
    """
    if bool(model) != bool(hashes):
        raise click.UsageError("--model and --hash belong together")
    settings = load_running(config, data_dir).settings
    from pipeline.index.following.past import past

    configure_logs("warning", libraries=False)
    first = asyncio.run(past(settings, moment))
    second = asyncio.run(past(settings, against)) if against is not None else None
    answer = _answer(first, second, moment)
    if hashes:
        answer["holders"] = _holders(first, moment, model, hashes)
        if second is not None and against is not None:
            answer["holders_against"] = _holders(second, against, model, hashes)
    if as_json:
        click.echo(json.dumps(answer))
        return
    reach = answer["whole_from"]
    click.echo(f"{first.records:,} records of the log lead to {_shown(moment)}")
    if reach is not None:
        click.echo(f"the log reaches back to {_shown(reach)}: what was stored before is not known")
    _print(answer["held"])
    for name in ("holders", "holders_against"):
        if name in answer:
            click.echo(f"\n{name.replace('_', ', ')}:")
            _print(answer[name])


def _answer(first: Past, second: Past | None, moment: float) -> dict[str, Any]:
    """Return what each source held on each medium, and how that changed."""
    trust = {(one.replica, one.dp_rank): one.trust for one in first.index.replicas(moment)}
    counts, then = _counts(first, moment), first.held()
    later = None if second is None else _counts(second, moment)
    now = {} if second is None else second.held()
    rows: list[dict[str, Any]] = []
    for key in sorted({*counts, *(later or {})}):
        row: dict[str, Any] = dict(zip(("replica", "dp_rank", "medium"), key, strict=True))
        row |= {"blocks": counts.get(key, 0), "trust": trust.get(key[:2], "")}
        if later is not None:
            before, after = then.get(key, set()), now.get(key, set())
            row["blocks_against"] = later.get(key, 0)
            both = before is not None and after is not None
            row["came"] = len((after or set()) - (before or set())) if both else None
            row["went"] = len((before or set()) - (after or set())) if both else None
        rows.append(row)
    reaches = [of.whole_from for of in (first, second) if of is not None and of.whole_from is not None]
    whole_from = max(reaches, default=None)
    return {"at": moment, "whole_from": whole_from, "records": first.records, "held": rows}


def _counts(of: Past, moment: float) -> dict[tuple[str, int, str], int]:
    return {
        (one.replica, one.dp_rank, medium): blocks
        for one in of.index.replicas(moment)
        for medium, blocks in one.blocks.items()
    }


def _holders(of: Past, moment: float, model: str, hashes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return how many tokens of the prompt each rank held, and whether that is a bound."""
    from pipeline.index.questions.question import Question
    from pipeline.index.questions.refused import QuestionRefused

    question = Question(model, block_hashes=[*hashes])
    try:
        answer = of.index.answer(question, of.index.scopes_of(question), question.chains[0], moment)
    except QuestionRefused as refused:
        raise click.UsageError(str(refused)) from refused
    return [
        {
            "replica": replica,
            "dp_rank": int(rank),
            "gpu": one.gpu,
            "cpu": one.cpu,
            "disk": one.disk,
            "bound": "upper" * one.upper_bound or "lower" * one.lower_bound,
        }
        for replica, instance in sorted(answer.instances.items())
        for rank, one in sorted(instance.ranks.items())
    ]


def _print(rows: list[dict[str, Any]]) -> None:
    if not rows:
        click.echo("nothing")
        return
    names = [*rows[0]]
    cells = [["?" if row[name] is None else str(row[name]) for name in names] for row in rows]
    numbers = {at for at, name in enumerate(names) if name not in ("replica", "medium", "trust", "bound")}
    for line in text_table([names, *cells], right=numbers, width=width()):
        click.echo(line)


def _shown(moment: float) -> str:
    return datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="seconds")
