"""A share of prefill is the same wherever it is shown: of what no lower tier and no transfer gave."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import clickhouse_connect
import msgspec
import pytest

from pipeline.advice.reading import Advice, read_advice
from pipeline.dashboards.alerts import CAPACITY_LOSS, ROUTING_LOSS
from pipeline.dashboards.boards.choices import SHARES
from pipeline.dashboards.boards.fleet import REPLICAS as REPLICAS_PANEL
from pipeline.dashboards.boards.model import CAPACITY_GAIN
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.fleet_rows import FillsRow
from schemas.settings import Settings
from tests.support.inputs.board_rows import HOUR, REPLICAS, choice_rows, runner, window_rows, write_rows

WINDOWS = 6
CAUSES = {
    "promoted_tokens": 60,
    "transferred_tokens": 40,
    "generated_tokens": 25,
    "peer_tokens": 30,
    "peer_and_evicted_tokens": 10,
    "evicted_tokens": 10,
    "evicted_elsewhere_tokens": 5,
    "cleared_tokens": 5,
    "cold_tokens": 35,
    "unknown_tokens": 5,
}
PREFILL = sum(CAUSES.values()) - sum(
    CAUSES[f"{cause}_tokens"] for cause in ("promoted", "transferred", "generated")
)
AVOIDABLE, ROUTING, CAPACITY, NEEDED = 0.6, 0.4, 0.25, 0.2
"""Shares of PREFILL; NEEDED is what the capacity curve of `window_rows` has."""


@pytest.fixture
def filled(own: Settings) -> Settings:
    """Of each window of both replicas more came from elsewhere than was computed."""
    rows = [
        msgspec.structs.replace(row, filled_tokens=sum(CAUSES.values()), **CAUSES)
        if isinstance(row, FillsRow)
        else row
        for number in range(WINDOWS)
        for replica in REPLICAS
        for row in (*window_rows(number, replica), *choice_rows(number, HOUR, replica))
    ]
    write_rows(own, rows, rolled_up=False)
    return own


def advised(store: EmbeddedStore, settings: Settings) -> Advice:
    client = clickhouse_connect.get_client(dsn=store.url, database=settings.clickhouse.database)
    try:
        start = int(HOUR.timestamp())
        return read_advice(client, settings.clickhouse.database, start, start + 59)
    finally:
        client.close()


def test_a_share_of_prefill_is_the_same_everywhere(store: EmbeddedStore, filled: Settings) -> None:
    run = runner(store, filled)
    end = HOUR + timedelta(seconds=10 * WINDOWS - 1)

    def first(owner: str, sql: str) -> dict[str, Any]:
        found = run(owner, sql, to=end)
        return dict(zip(found.column_names, found.result_rows[0], strict=True))

    advice = advised(store, filled)
    titles = {finding.kind: finding.finding for finding in advice.findings}
    assert advice.answer[0].value == AVOIDABLE
    assert titles["routing"] == "Another replica held 40 % of the prefill of m"
    assert titles["capacity"] == "a, b evict what they fill again: at least 20 % of their prefill"
    assert first("alert", ROUTING_LOSS.sql)["value"] == ROUTING
    assert first("alert", CAPACITY_LOSS.sql)["value"] == CAPACITY
    assert first(SHARES.id, SHARES.sql)["routing"] == ROUTING
    assert first(CAPACITY_GAIN.id, CAPACITY_GAIN.sql)["% of the prefill"] == 100 * NEEDED
    row = first(REPLICAS_PANEL.id, REPLICAS_PANEL.sql)
    assert (row["prefill"], row["avoidable"]) == (WINDOWS * PREFILL, WINDOWS * PREFILL * AVOIDABLE)
    bounds = f"(from = '{HOUR:%F %T}', to = '{end:%F %T}')"
    assert run(
        "views",
        f"SELECT (SELECT sum(avoidable_tokens) / sum(prefill_tokens) FROM hit_potential{bounds}),"
        f" (SELECT sum(avoidable_tokens) / sum(prefill_tokens) FROM replica_facts{bounds}),"
        f" (SELECT max(saved_share) FROM capacity_gain{bounds})",
    ).result_rows == [(AVOIDABLE, AVOIDABLE, NEEDED)]
