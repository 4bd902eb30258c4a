"""Figures of boards that contradict each other, in any store and range: each as a line of text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.boards.causes import CAUSE_TOKENS, GENERATED, NO_PREFILL
from pipeline.dashboards.boards.flow import ASKED, FOUND, parts
from pipeline.dashboards.fleet_metrics import families
from pipeline.dashboards.queries import TOP
from tests.support.boards.shown import Row, Shown

ROUNDED = 0.051
"""Of a figure of one digit behind the point, at most."""
_SAVING = ("routing", "capacity", "restarts", "prefix")
_SHARE = re.compile(r"(?:at least |about |at most )?([\d.]+ %)")


def contradictions(shown: Shown) -> list[str]:
    """Return what contradicts itself; what is left out because a board shows only the first ones is none."""
    return [f"{check.__name__.lstrip('_')}: {line}" for check in CHECKS for line in check(shown)]


def _shares_of_a_replica_are_its_prefill(shown: Shown) -> Iterator[str]:
    for row in shown.panel("fleet-replicas"):
        shares = [value for name, value in row.items() if name.endswith(" %") and name != "hit rate %"]
        if row["prefill"] and abs(sum(shares) - 100) > ROUNDED * len(shares):
            yield f"{row['replica']}: {shares} add up to {sum(shares)}"
        if (row["avoidable"] or 0) > (row["prefill"] or 0):
            yield f"{row['replica']}: {row['avoidable']} of {row['prefill']} avoidable"


def _fills_are_the_same_wherever_they_stand(shown: Shown) -> Iterator[str]:
    step = shown.step
    for model in shown.models:
        chosen = {"model": [model]}
        charts = {
            id: _by_cause(shown.panel(id, **chosen), seconds)
            for id, seconds in {"fleet-fills": step, "model-fills": step, "model-replicas": 1}.items()
        }
        first = charts["fleet-fills"]
        yield from _differ(model, {id: sum(each.values()) for id, each in charts.items()})
        for cause in first:
            yield from _differ(f"{model}, {cause}", {id: each[cause] for id, each in charts.items()})
        replicas = [row for row in shown.panel("fleet-replicas") if row["model"] == model]
        prefill = sum(tokens for cause, tokens in first.items() if cause not in NO_PREFILL)
        yield from _differ(
            f"{model}, prefill", {"fleet-fills": prefill, "fleet-replicas": _sum(replicas, "prefill")}
        )
        for cause in NO_PREFILL:
            told = {"fleet-fills": first[cause], "fleet-replicas": _sum(replicas, cause)}
            yield from _differ(f"{model}, {cause}", told)
        yield from _flow_adds_up(model, shown.panel("fleet-flow", **chosen), first)
    for row in shown.family(families.FILLS):
        told = _by_cause(shown.panel("fleet-fills", model=[row["model"]]), step)
        whole = sum(value for name, value in row.items() if name != "model")
        yield from _differ(row["model"], {"metrics": whole, "fleet-fills": sum(told.values())})


def _metrics_are_those_of_the_boards(shown: Shown) -> Iterator[str]:
    tokens: defaultdict[str, float] = defaultdict(float)
    for row in shown.family(families.TOKENS):
        tokens[row["medium"]] += row["tokens"] or 0
    held = _held(shown.panel("fleet-occupancy"))
    last = max((time for time, _ in held), default=None)
    for medium in {medium for time, medium in held if time == last}:
        # Who is silent now has a last figure there, and none here.
        if tokens[medium] < held[last, medium] * (1 - 1e-6):
            yield f"{medium}: {tokens[medium]} tokens in the metrics, {held[last, medium]} on the board"
    rates = {row["series"]: row["actual"] for row in shown.panel("fleet-hit-rates")}
    for row in shown.family(families.HITS):
        if row["model"] in rates:
            told = {"metrics": row["actual"] / row["queried"], "fleet-hit-rates": rates[row["model"]]}
            yield from _differ(row["model"], told)
    hourly: defaultdict[tuple[str, str], float] = defaultdict(float)
    for row in shown.family(families.ADVICE):
        hourly[row["model"], row["kind"]] += row["tokens"]
    for found in shown.briefing("finding")[:7]:
        hourly[found["model"], found["kind"]] -= found["tokens"] / shown.seconds * 3600
    for key, rest in hourly.items():
        if abs(rest) > 1:
            yield f"{key}: {rest} tokens/h more in the metrics than in the findings"


def _flow_adds_up(model: str, links: list[Row], causes: dict[str, float]) -> Iterator[str]:
    into: defaultdict[str, float] = defaultdict(float)
    out: defaultdict[str, float] = defaultdict(float)
    for link in links:
        into[link["into"]] += link["tokens"]
        out[link["from"]] += link["tokens"]
    for part in out.keys() - {ASKED}:
        yield from _differ(f"{model}, {part}", {"flows in": into[part], "flows out": out[part]})
    filled = out[ASKED] - into[FOUND]
    asked = {cause: tokens for cause, tokens in causes.items() if cause != GENERATED}
    yield from _differ(model, {"flow": filled, "fleet-fills": sum(asked.values())})
    of_column = {part.column: into[part.name] for part in parts()}
    for cause, tokens in asked.items():
        told = {"flow": sum(of_column[column] for column in CAUSE_TOKENS[cause]), "fleet-fills": tokens}
        yield from _differ(f"{model}, {cause}", told)


def _the_answer_is_that_of_the_replicas(shown: Shown) -> Iterator[str]:
    rates = {row["series"]: row["actual"] for row in shown.panel("fleet-hit-rates")}
    # The answer is dear, and that of the only model is that of all.
    some = [[model] for model in shown.models]
    for model in [[], *some] if len(some) > 1 else [[]]:
        of = model or shown.models
        answer = {line["title"]: line for line in shown.briefing("answer", model=model)}
        rows = [row for row in shown.panel("fleet-replicas") if row["model"] in of]
        prefill, avoidable = _sum(rows, "prefill"), _sum(rows, "avoidable")
        if (line := answer.get("Prefill you could avoid")) and prefill:
            yield from _differ(str(model), {"answer": line["value"], "fleet-replicas": avoidable / prefill})
        line = answer.get("Hit rate")
        if line and line["value"] is not None and len(of) == 1 and of[0] in rates:
            yield from _differ(str(model), {"answer": line["value"], "fleet-hit-rates": rates[of[0]]})


def _findings_are_no_more_than_the_answer(shown: Shown) -> Iterator[str]:
    lost = sum(row["avoidable"] or 0 for row in shown.panel("fleet-replicas"))
    gpus = _gpus(shown)
    for found in shown.briefing("finding"):
        if found["kind"] not in _SAVING:
            continue
        if found["at_least"] > found["tokens"] or found["tokens"] > found["at_most"]:
            yield f"{found['title']}: {found['at_least']}, {found['tokens']}, {found['at_most']}"
        if found["tokens"] > lost:
            yield f"{found['title']}: {found['tokens']} of {lost} avoidable"
        hourly = found["gpu_seconds_per_hour"]
        if gpus is not None and hourly is not None and hourly / 3600 > gpus + 0.006:
            yield f"{found['title']}: {hourly / 3600} of {gpus} GPUs"


def _a_finding_has_one_figure_and_one_bound(shown: Shown) -> Iterator[str]:
    findings = [found for found in shown.briefing("finding") if found["kind"] in _SAVING]
    for found in findings:
        most = _percent(found["at_most"] / found["prefill_tokens"])
        if f"({most})" not in found["figure"] and "saves at most" not in found["figure"]:
            yield f"{found['figure']} does not say {most}"
    (lever,) = [line for line in shown.briefing("answer") if line["title"] == "Biggest lever"] or [None]
    if lever is None:
        return
    if not findings:
        if lever["figure"] != "none":
            yield f"{lever['figure']} is the biggest lever of no finding"
        return
    told = _SHARE.findall(lever["detail"])
    expected = [_percent(findings[0][each] / findings[0]["prefill_tokens"]) for each in ("tokens", "at_most")]
    if told != expected[: len(told)]:
        yield f"lever {lever['detail']!r}, finding {expected}"
    if findings[0]["kind"] in ("routing", "capacity") and told[0] not in findings[0]["title"]:
        yield f"lever {lever['detail']!r}, finding {findings[0]['title']!r}"


def _nothing_is_used_beyond_its_capacity_unmarked(shown: Shown) -> Iterator[str]:
    for panel in (panel for board in BOARDS for panel in board.panels if panel.unit == "share"):
        if panel.kind in ("table", "curve", "lanes") or any(each.at == 1 for each in panel.thresholds):
            continue  # These mark it, or are no share of a capacity.
        for row in shown.panel(panel.id):
            for name, value in row.items():
                if isinstance(value, float) and value > 1 + 1e-9:
                    yield f"{panel.id}: {name} {value}"
    for row in shown.panel("fleet-replicas"):
        for at in shown.panel("replica-gpu-blocks", replica=[row["replica"]]):
            if at["capacity"] and at["in use"] > at["capacity"]:
                yield f"{row['replica']}: {at['in use']} of {at['capacity']} blocks"
    for row in shown.rows("held", f"SELECT * FROM held({_range(shown)})"):
        if row["tokens"] is not None and row["capacity_tokens"] and row["tokens"] > row["capacity_tokens"]:
            yield f"{row['replica']}: {row['tokens']} of {row['capacity_tokens']} tokens"
        if row["tokens"] == 0 and row["blocks"]:
            yield f"{row['replica']} {row['medium']}: {row['blocks']} blocks of no tokens"


def _what_is_held_is_what_replicas_hold(shown: Shown) -> Iterator[str]:
    whole = _held(shown.panel("fleet-occupancy"))
    parts: defaultdict[tuple[Any, str], float] = defaultdict(float)
    for replica in {row["replica"] for row in shown.panel("fleet-replicas")}:
        for key, tokens in _held(shown.panel("replica-occupancy", replica=[replica])).items():
            parts[key] += tokens
    for key, tokens in whole.items():
        yield from _differ(str(key), {"fleet-occupancy": tokens, "replica-occupancy": parts[key]})


def _lanes_are_sorted_as_the_table_of_replicas(shown: Shown) -> Iterator[str]:
    lanes = {row["place"]: row["replica"] for row in shown.panel("fleet-lanes-avoidable")}
    avoidable: defaultdict[str, float] = defaultdict(float)
    for row in shown.panel("fleet-replicas"):
        avoidable[row["replica"]] += row["avoidable"] or 0
    tokens = [avoidable[lanes[place]] for place in sorted(lanes)]
    if tokens != sorted(tokens, reverse=True):
        yield f"lanes of {[*lanes.items()]} have {tokens} avoidable tokens"


def _costs_are_those_of_the_charts(shown: Shown) -> Iterator[str]:
    hours = {row["model"]: 0.0 for row in shown.panel("fleet-costs")}
    if len(hours) >= TOP:
        return
    for row in shown.panel("fleet-costs"):
        hours[row["model"]] += row["GPU-hours lost"] or 0.0
    charted = sum(row["gpus"] for row in shown.panel("fleet-gpus-lost")) * shown.step / 3600
    told = sum(hours.values())
    if abs(charted - told) > 0.005 * (len(shown.panel("fleet-costs")) + 1):
        yield f"{charted} GPU-hours lost in the chart, {told} in the table"
    gpus, mean = _gpus(shown), charted * 3600 / shown.seconds
    if gpus is not None and gpus > 1.02 * mean + 0.006:
        yield f"{gpus} GPUs in the answer, {mean} in the chart"


def _unknown_history_is_told_in_the_answer_and_the_table(shown: Shown) -> Iterator[str]:
    told = any("unknown until" in line["detail"] for line in shown.briefing("answer"))
    rows = shown.panel("fleet-replicas")
    listed = [row["replica"] for row in rows if row["unknown until"] and row["prefill"]]
    if told != bool(listed):
        yield f"the answer says {told}, the table {listed}"


def _a_curve_is_below_its_bound(shown: Shown) -> Iterator[str]:
    for row in shown.panel("model-capacity-gain"):
        if (row["% of the prefill"] or 0) > row["at most %"] + 2 * ROUNDED:
            yield f"{row['model']}: {row['% of the prefill']} %, at most {row['at most %']} %"
    curves = {row["model"]: row["more tokens a replica"] for row in shown.panel("model-capacity-gain")}
    for found in shown.briefing("finding"):
        if found["kind"] == "capacity" and found["at_least"] and curves.get(found["model"], 1) is None:
            yield f"{found['title']}: the curve of {found['model']} is not known"


Check = Callable[[Shown], Iterator[str]]
CHECKS: tuple[Check, ...] = (
    _shares_of_a_replica_are_its_prefill,
    _fills_are_the_same_wherever_they_stand,
    _metrics_are_those_of_the_boards,
    _the_answer_is_that_of_the_replicas,
    _findings_are_no_more_than_the_answer,
    _a_finding_has_one_figure_and_one_bound,
    _nothing_is_used_beyond_its_capacity_unmarked,
    _what_is_held_is_what_replicas_hold,
    _lanes_are_sorted_as_the_table_of_replicas,
    _costs_are_those_of_the_charts,
    _unknown_history_is_told_in_the_answer_and_the_table,
    _a_curve_is_below_its_bound,
)


def _differ(what: str, values: dict[str, float], within: float = 1e-6) -> Iterator[str]:
    """Give a line if the values are not one."""
    if max(values.values()) - min(values.values()) > within * max(1.0, *map(abs, values.values())):
        yield f"{what}: {', '.join(f'{value:.12g} in {name}' for name, value in values.items())}"


def _by_cause(rows: list[Row], seconds: float) -> dict[str, float]:
    return {cause: seconds * sum(row[cause] for row in rows) for cause in CAUSE_TOKENS}


def _sum(rows: list[Row], column: str) -> float:
    return float(sum(row[column] or 0 for row in rows))


def _held(rows: list[Row]) -> dict[tuple[Any, str], float]:
    """Return the tokens of each time and medium, whatever is said of how exact they are."""
    found: defaultdict[tuple[Any, str], float] = defaultdict(float)
    for row in rows:
        medium = row["medium"].lstrip("≤≥≈ ").removesuffix(", as far as known")
        found[row["time"], medium] += row["tokens"] or 0
    return found


def _gpus(shown: Shown) -> float | None:
    """Return the GPUs of the answer; None where they are not known."""
    for line in shown.briefing("answer"):
        if found := re.search(r"≈ ([\d.]+) GPUs", line["detail"]):
            return float(found[1])
    return None


def _percent(share: float) -> str:
    digits = 1 if share < 0.0995 else 0
    return f"{round(100 * share, digits):g} %"


def _range(shown: Shown) -> str:
    return f"from = {int(shown.start.timestamp())}, to = {int(shown.end.timestamp())}"
