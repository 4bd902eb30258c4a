"""GPU-seconds and costs of a range, by the rules of docs/figures.md, from ten-second rows and scrapes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from pipeline.verify.fleet.prefixes import AVOIDABLE

LOST = AVOIDABLE
AT_RECEIVERS = {"peer": "peer_at_receivers", "evicted_elsewhere": "evicted_at_receivers"}
"""By cause, the part of it for blocks held or evicted only by sources that receive KV."""
SAVED = {"promoted": "lower_tier"}
DAY = timedelta(days=1)

Basis = Literal["measured", "assumed", "unknown"]
_WORST_LAST: tuple[Basis, ...] = ("measured", "assumed", "unknown")
Row = Mapping[str, Any]
"""Columns of a row."""


class Key(NamedTuple):
    """What a row of `prefill_costs` is about."""

    tenant: str
    model: str
    replica: str
    kind: str
    cause: str
    currency: str


@dataclass
class Cost:
    """The figures of such a row; GPU-seconds and cost are None where no part of it has any."""

    tokens: int = 0
    gpu_seconds: float | None = None
    cost: float | None = None
    tokens_without_rate: int = 0
    unpriced_tokens: int = 0
    rate_basis: Basis = "measured"


class Scraped(NamedTuple):
    """An engine's prefill counters at a moment."""

    time: datetime
    tokens: int
    seconds: float


class Hour(NamedTuple):
    """The first and the last scrape of an hour of a rank."""

    model: str
    replica: str
    dp_rank: int
    start: datetime
    first: Scraped
    last: Scraped


@dataclass
class Inputs:
    """All that the figures of a range follow from."""

    begin: datetime
    end: datetime
    fills: Sequence[Row]
    """Of the windows from `begin` to `end`."""
    hits: Sequence[tuple[str, str, datetime, int]]
    """Model, replica, when, tokens found since the scrape before."""
    hours: Sequence[Hour]
    """From 25 hours before the first day to the end of the last."""
    sessions: Sequence[Row]
    """Rows of `sources`: the engine sessions that overlap the range."""
    settings: Sequence[Row]
    """All rows of `prefill_settings`."""
    ranks: dict[tuple[str, str], int] = field(init=False)

    def __post_init__(self) -> None:
        found: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        for session in self.sessions:
            found[session["model"], session["replica"]].add(session["dp_rank"])
        self.ranks = {replica: len(ranks) for replica, ranks in found.items()}


def costs(inputs: Inputs) -> dict[Key, Cost]:
    """Return what `prefill_costs` must say of the range, without rows of no tokens."""
    rates = _Rates(inputs)
    found: defaultdict[Key, Cost] = defaultdict(Cost)
    for row in _of_largest_groups(inputs.fills):
        tenant = _tenant(inputs.sessions, row["model"], row["replica"], row["hash_domain"])
        for cause in LOST:
            tokens = row[f"{cause}_tokens"]
            if part := AT_RECEIVERS.get(cause):
                tokens -= row[f"{part}_tokens"]
                rates.add(found, row, row["window"], (tenant, "lost", "at_receivers"), row[f"{part}_tokens"])
            rates.add(found, row, row["window"], (tenant, "lost", cause), tokens)
        for column, cause in SAVED.items():
            rates.add(found, row, row["window"], (tenant, "saved", cause), row[f"{column}_tokens"])
    for model, replica, at, hit in inputs.hits:
        tenant = _tenant(inputs.sessions, model, replica, None)
        rates.add(found, {"model": model, "replica": replica}, at, (tenant, "saved", "gpu"), hit)
    return {key: cost for key, cost in found.items() if cost.tokens}


class _Rates:
    """GPU-seconds a token and prices, by replica and moment."""

    def __init__(self, inputs: Inputs) -> None:
        self._measured = measured(inputs.hours, inputs.ranks)
        self._settings: defaultdict[str, list[Row]] = defaultdict(list)
        for row in sorted(inputs.settings, key=lambda row: row["since"]):
            self._settings[row["model"]].append(row)

    def add(
        self, found: dict[Key, Cost], of: Row, at: datetime, what: tuple[str, str, str], tokens: int
    ) -> None:
        """Add tokens that were lost or saved in the window of `at` to `found`."""
        if not tokens:
            return
        tenant, kind, cause = what
        settings = self._in_force(of["model"], at)
        currency = settings["currency"] if settings else ""
        cost = found[Key(tenant, of["model"], of["replica"], kind, cause, currency)]
        cost.tokens += tokens
        seconds, basis = self._of(of["model"], of["replica"], at.date(), settings)
        cost.rate_basis = max(cost.rate_basis, basis, key=_WORST_LAST.index)
        if seconds is None:
            cost.tokens_without_rate += tokens
        else:
            cost.gpu_seconds = (cost.gpu_seconds or 0.0) + tokens * seconds
        if seconds is None or settings is None or settings["gpu_hour_price"] is None:
            cost.unpriced_tokens += tokens
        else:
            cost.cost = (cost.cost or 0.0) + tokens * seconds * settings["gpu_hour_price"] / 3600

    def _of(self, model: str, replica: str, day: date, settings: Row | None) -> tuple[float | None, Basis]:
        if settings is None or settings["gpus_per_replica"] is None:
            return None, "unknown"
        of_engine = self._measured.get((model, replica, day))
        if of_engine is not None:
            return of_engine * settings["gpus_per_replica"], "measured"
        if settings["prefill_tokens_per_second"] is None:
            return None, "unknown"
        return settings["gpus_per_replica"] / settings["prefill_tokens_per_second"], "assumed"

    def _in_force(self, model: str, at: datetime) -> Row | None:
        of_model = self._settings.get(model)
        if not of_model:
            return None
        return next((row for row in reversed(of_model) if row["since"] <= at), of_model[0])


def measured(
    hours: Iterable[Hour], ranks: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str, date], float]:
    """Return the seconds that a replica takes for a token, by model, replica and day."""
    grown: defaultdict[tuple[str, str, int, date], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    before: dict[tuple[str, str, int], Scraped] = {}
    for hour in sorted(hours, key=lambda hour: hour.start):
        rank = (hour.model, hour.replica, hour.dp_rank)
        old, new = before.get(rank, hour.first), hour.last
        before[rank] = new
        fell = new.tokens < old.tokens or new.seconds < old.seconds
        growth = (
            new.tokens - (0 if fell else old.tokens),
            new.seconds - (0.0 if fell else old.seconds),
            (new.time - old.time).total_seconds(),
        )
        for day in (hour.start.date(), hour.start.date() + DAY):
            sums = grown[hour.model, hour.replica, hour.dp_rank, day]
            for place, value in enumerate(growth):
                sums[place] += value
    tokens: defaultdict[tuple[str, str, date], float] = defaultdict(float)
    busy: defaultdict[tuple[str, str, date], float] = defaultdict(float)
    for (model, replica, _, day), (computed, seconds, observed) in grown.items():
        tokens[model, replica, day] += computed
        busy[model, replica, day] += min(seconds, observed)
    return {
        key: busy[key] / ranks[key[:2]] / tokens[key]
        for key in tokens
        if tokens[key] > 0 and busy[key] > 0 and key[:2] in ranks
    }


def _of_largest_groups(fills: Sequence[Row]) -> list[Row]:
    """Return the rows of the KV-cache group of each replica that filled most; of equal ones, the first."""
    filled: defaultdict[tuple[str, str, str], defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in fills:
        filled[row["hash_domain"], row["model"], row["replica"]][row["group_idx"]] += row["filled_tokens"]
    largest = {}
    for replica, groups in filled.items():
        most = max(groups.values())
        largest[replica] = min(group for group, tokens in groups.items() if tokens == most)
    return [
        row for row in fills if row["group_idx"] == largest[row["hash_domain"], row["model"], row["replica"]]
    ]


def _tenant(sessions: Sequence[Row], model: str, replica: str, hash_domain: str | None) -> str:
    """Return the tenant of a replica in a hash domain, or its latest where no domain is known."""
    of_replica = [row for row in sessions if (row["model"], row["replica"]) == (model, replica)]
    of_domain = [row for row in of_replica if hash_domain in (None, row["hash_domain"])]
    if not of_domain:
        return ""
    latest = max(row["opened_at"] for row in of_domain)
    # Of domains that opened at the same time, the first by name.
    first = min((row for row in of_domain if row["opened_at"] == latest), key=itemgetter("hash_domain"))
    return str(first["tenant"])
