"""`kvlens whatif`: the same traffic under other conditions, beside what the figures promise for them."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import click

from pipeline.cli.failures import Failure, reading, warn
from pipeline.cli.groups import examples
from pipeline.cli.numbers import Whole
from pipeline.cli.progress_line import ProgressLine
from pipeline.cli.terminal import width
from pipeline.cli.whatif_options import Capacity, Several, capacity, replicas, routing
from pipeline.cli.whatif_tables import played_table, saved_table
from pipeline.simulator.traffic.routing import ROUTINGS, Routing
from pipeline.traces.kind import kind
from pipeline.traces.times import UNITS
from pipeline.unzipped import unzipped

_ENDLESS = (Capacity(None),)


@click.command(
    epilog=examples(
        "kvlens whatif requests.jsonl.gz --replicas 8 --capacity 4000,none",
        "kvlens whatif requests.jsonl.gz --replicas 8 --routing round-robin,sticky",
        "kvlens whatif engine.kvrec --capacity +200000t,none",
    )
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--replicas",
    "counts",
    type=Several("N[,N...]", replicas),
    help="Trace: by default 1. Recording: as many as recorded, or 1: one cache for all that compute prompts.",
)
@click.option(
    "--capacity",
    "capacities",
    type=Several("SIZE[,SIZE...]", capacity),
    help="Cache of each replica: blocks of the trace (4000), tokens (2000000t), or none, the default, for "
    "endless. Recording: the size to add: +200000t, or none.",
)
@click.option(
    "--routing",
    "routings",
    type=Several("HOW[,HOW...]", routing),
    help=f"Trace: {', '.join(ROUTINGS)}; by default the first.",
)
@click.option(
    "--block-size", type=Whole(1), help="Trace: tokens of one hash id, where the file does not tell."
)
@click.option(
    "--time-unit",
    type=click.Choice(tuple(UNITS)),
    help="Trace: the unit of its times, where the file does not tell.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of a table.")
def whatif(
    file: Path,
    counts: tuple[int, ...] | None,
    capacities: tuple[Capacity, ...] | None,
    routings: tuple[Routing, ...] | None,
    block_size: int | None,
    time_unit: str | None,
    as_json: bool,
) -> None:
    """Show what other caches, replicas or routing would change.

    FILE is a request trace with block ids (Mooncake's, Qwen-Bailian's, WEKA's, Dynamo's, LiteLLM's; JSON
    lines, a JSON array or CSV) or a recording (`kvlens record`), plain or packed with gzip or zstd. Give an
    option several values, separated by commas, and you get a row for each combination. The first row is the
    fleet as it is: for a trace, the first values; for a recording, the recorded fleet. The other rows show
    the result of other conditions, beside the promise of the first row's figures.
    """
    with reading(file):
        if _is_trace(file):
            conditions = counts or (1,), capacities or _ENDLESS, routings or ROUTINGS[:1]
            _trace(file, conditions, block_size, time_unit, as_json)
        elif routings:
            raise Failure(
                "a recording cannot tell what other routing would do: hits leave no events, so it does not "
                "hold the requests; --replicas 1 shows what no routing can exceed"
            )
        elif block_size or time_unit:
            raise Failure("a recording says itself how large its blocks are and when they came")
        else:
            _recording(file, counts, capacities or _ENDLESS, as_json)


def _is_trace(path: Path) -> bool:
    """Return whether a file is a trace rather than a recording. Raises Failure if it is neither."""
    with unzipped(path) as file:
        try:
            found, seems = kind(file.read(4096))
        except (EOFError, zlib.error) as error:
            raise Failure(f"{path}: the file is damaged: {error}") from error
    if found == "other":
        raise Failure(
            f"{path}: neither a request trace nor a recording{seems and f' ({seems})'}: traces are JSON "
            "lines, a JSON array or CSV, recordings what `kvlens record` writes"
        )
    return found == "trace"


def _trace(
    path: Path,
    conditions: tuple[tuple[int, ...], tuple[Capacity, ...], tuple[Routing, ...]],
    block_size: int | None,
    time_unit: str | None,
    as_json: bool,
) -> None:
    from pipeline.traces.reading import read_trace
    from pipeline.whatif.conditions import combined
    from pipeline.whatif.playing import play
    from pipeline.whatif.report import played_row, trace_facts

    counts, capacities, routings = conditions
    if any(each.extra for each in capacities):
        raise Failure("+ is for recordings; for a trace give whole capacities, the present one first")
    with ProgressLine() as progress:
        progress.step(f"reading {path}")
        trace = read_trace(path, block_size, time_unit)
        blocks = dict.fromkeys(
            each.amount // trace.block_size if each.amount and each.in_tokens else each.amount
            for each in capacities
        )
        facts = trace_facts(trace)
        every = combined(counts, blocks, routings, trace)
        played = []
        for number, each in enumerate(every, 1):
            progress.step(f"playing {facts['requests']:,} requests: row {number} of {len(every)}")
            played.append(play(trace, each))
    rows = [played_row(played[0], each) for each in played]
    if as_json:
        click.echo(json.dumps({"trace": facts, "rows": rows}, indent=2))
    else:
        click.echo("\n".join(played_table(facts, rows, width())))


def _recording(
    path: Path, counts: tuple[int, ...] | None, capacities: tuple[Capacity, ...], as_json: bool
) -> None:
    from pipeline.recordings.events import RecordedEvents
    from pipeline.whatif.recorded import follow, saved
    from pipeline.whatif.report import recorded_row, saved_row

    if any(each.amount and not (each.extra and each.in_tokens) for each in capacities):
        raise Failure(
            "a recording does not say how large the caches were: give the tokens to add to each, such as "
            "--capacity +200000t, or none for endless"
        )
    with ProgressLine() as progress:
        progress.step(f"reading {path}")
        events = RecordedEvents(path)
        fleet = follow(events, events.roles)
    if events.torn:
        warn(f"{path}: ends inside a frame; everything before it was read")
    asked = [(count, each.amount) for count in counts or (fleet.sources,) for each in capacities]
    if not counts and fleet.computing > 1:
        asked.append((1, None))
    rows = [recorded_row(fleet)]
    rows += [saved_row(fleet, count, extra, saved(fleet, count, extra)) for count, extra in asked]
    if as_json:
        click.echo(json.dumps({"incomplete": fleet.incomplete, "rows": rows}, indent=2))
    else:
        click.echo("\n".join(saved_table(rows, fleet.incomplete, width())))
