"""Each finding has one figure and one bound, a hybrid engine's too; GPUs that none explains are told."""

from __future__ import annotations

from datetime import datetime, timedelta

import clickhouse_connect
import msgspec
import pytest

from pipeline.advice.reading import Advice, read_advice
from pipeline.dashboards.boards.model import CAPACITY_GAIN
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.fleet_rows import CapacityCurveRow, FillsRow
from schemas.rows import Row, SourceRow
from schemas.setting_rows import ModelRow, PrefillSettingsRow
from schemas.settings import Settings
from tests.support.inputs.board_rows import HOUR, hour_of_rows, runner, window_rows, write_rows
from tests.support.inputs.empty_tables import EmptyTables
from tests.support.suite.night import night_rows

WINDOWS = 60
END = HOUR + timedelta(seconds=10 * WINDOWS - 1)
NONE = dict.fromkeys(("peer_tokens", "cleared_tokens", "cold_tokens", "evicted_tokens"), 0)
FILLS = {
    "a": {**NONE, "evicted_tokens": 45, "cleared_tokens": 20, "cold_tokens": 35},
    "b": {**NONE, "evicted_tokens": 20, "cold_tokens": 80},
}
"""Of 100 tokens in each window. `a` is as a hybrid engine: nobody knows how much was stored between."""
MEBIBYTE = 1 << 20


def rows(opened: datetime = HOUR) -> list[Row]:
    found: list[Row] = [
        ModelRow("m", MEBIBYTE, 1),
        # A fifth of a GPU-second a token.
        PrefillSettingsRow("m", HOUR - timedelta(days=1), 10.0, 2.0, None, "", 1),
    ]
    sources = [row for row in hour_of_rows() if isinstance(row, SourceRow)]
    found += [msgspec.structs.replace(row, opened_at=opened) for row in sources]
    for number in range(WINDOWS):
        for replica, causes in FILLS.items():
            for row in window_rows(number, replica):
                if isinstance(row, FillsRow):
                    row = msgspec.structs.replace(row, **causes)
                if not isinstance(row, CapacityCurveRow) or replica == "b":
                    found.append(row)
    return found


def advised(settings: Settings, start: datetime = HOUR) -> Advice:
    store = settings.clickhouse
    client = clickhouse_connect.get_client(dsn=store.url, database=store.database)
    try:
        return read_advice(client, store.database, int(start.timestamp()), int(END.timestamp()))
    finally:
        client.close()


def test_a_hybrid_is_told_what_it_evicts_and_others_from_what_size_to_what(
    store: EmbeddedStore, own: Settings
) -> None:
    write_rows(own, rows(), rolled_up=False)
    advice = advised(own)
    hybrid, other = (found for found in advice.findings if found.kind == "capacity")
    assert hybrid.finding == "a evicts what it fills again: 45 % of its prefill"
    assert hybrid.action == (
        "Give a more KV cache, or a CPU tier: how much is not known, as is usual for hybrid engines"
    )
    # 45 tokens in ten seconds.
    assert hybrid.figure == "saves at most 16.2k tokens/h (0.9 GPUs)"
    assert (hybrid.at_least_per_hour, hybrid.at_most_per_hour) == (0.0, 16200.0)
    assert other.finding == "b evicts what it fills again: at least 20 % of its prefill"
    # 100 blocks of 16 tokens, a mebibyte each.
    assert other.action.startswith("Give b 16 MiB more KV cache a rank (from 1.56 GiB to 1.58 GiB), or ")
    assert other.figure == "saves at least 7.2k tokens/h (0.4 GPUs), at most 7.2k (20 %)"
    lines = {line.title: line for line in advice.answer}
    assert lines["Biggest lever"].detail == "saves at most 45 % of the prefill of a"
    assert lines["Prefill you could avoid"].detail == (
        "8.5 tokens/s ≈ 1.7 GPUs, assumed; at least 0.4 of them without a finding"
    )
    run = runner(store, own)
    gain = [("m", 16, 16 * MEBIBYTE, 20 * WINDOWS, 10.0, 32.5, True)]
    assert run(CAPACITY_GAIN.id, CAPACITY_GAIN.sql, to=END).result_rows == gain
    unknown = [("m", None, None, None, None, 45.0, True)]
    assert run(CAPACITY_GAIN.id, CAPACITY_GAIN.sql, to=END, replica=["a"]).result_rows == unknown


@pytest.mark.parametrize(("seconds", "compared"), [(30, True), *night_rows((31, False))])
def test_what_was_hardly_watched_is_compared_with_nothing(
    seconds: int, compared: bool, empty_tables: EmptyTables
) -> None:
    """Of 300 seconds before, nine tenths are enough."""
    with empty_tables.lent() as settings:
        write_rows(settings, rows(HOUR + timedelta(seconds=seconds)), rolled_up=False)
        answer = advised(settings, HOUR + timedelta(seconds=5 * WINDOWS)).answer
        changes = [line.change for line in answer if line.title in ("Prefill you could avoid", "Data")]
        if compared:
            assert changes == ["as in the range before", "as in the range before"]
        else:
            assert changes == ["nothing to compare with before", ""]
