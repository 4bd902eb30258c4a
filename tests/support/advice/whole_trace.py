"""Advice and money of the whole Mooncake conversation trace on eight replicas, against a recount.

    python -m tests.support.advice.whole_trace

Both agents and a store see the fleet of docs/reading.md. Exits with 1 where a figure is not the recount's;
`tests/system/whole/test_whole_trace.py` asserts that none is.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import clickhouse_connect

from pipeline.clickhouse import migrations
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.local.processes.ports import free_port
from pipeline.traces.reading import read_trace
from schemas.setting_rows import PrefillSettingsRow
from schemas.settings import ClickHouse, Settings
from tests.support.advice.played import BEGINS, MODEL, rows_of
from tests.support.advice.recount import AVOIDABLE, Recounted, recount
from tests.support.advice.scenario import BLOCK, Scenario
from tests.support.inputs.board_rows import write_rows
from tests.support.inputs.whole_trace import unpack

REPLICAS, CAPACITY = 8, 4000
SPEED, GPUS, PRICE = 8192.0, 4.0, 2.5
"""Prompt tokens a second and GPUs of a replica, price of a GPU's hour: made up."""
LOST = (*AVOIDABLE, "at_receivers")
"""The last one of nobody: no replica of the fleet receives what others computed."""
Found = dict[str, float]


def whole(directory: Path) -> Scenario:
    """Return the whole trace, no two requests at one time."""
    unpack(directory / "trace.jsonl")
    requests = tuple(
        replace(request, seconds=request.seconds + number * 1e-6)
        for number, request in enumerate(read_trace(directory / "trace.jsonl").requests)
    )
    return Scenario(requests, (CAPACITY,) * REPLICAS)


def counted(scenario: Scenario, found: Recounted) -> Found:
    """Return what a recount has of the trace: tokens, GPU-seconds, cost."""
    saved = found.curve(range(REPLICAS))
    largest = max(saved)
    knee = max(sorted(saved), key=lambda size: saved[size] / saved[largest] - size / largest)
    figures: Found = {
        "filled": found.tokens(),
        "avoidable": found.tokens(*AVOIDABLE),
        "advice routing": found.tokens("peer", "peer_and_evicted"),
        "advice capacity": saved[knee],
        "advice capacity, at most": found.tokens("evicted", "peer_and_evicted"),
    }
    for cause in LOST:
        tokens = found.tokens(cause)
        figures[f"tokens {cause}"] = tokens
        figures[f"GPU-seconds {cause}"] = tokens / SPEED * GPUS
        figures[f"cost {cause}"] = tokens / SPEED * GPUS / 3600 * PRICE
    return figures


def told(scenario: Scenario, store: EmbeddedStore) -> Found:
    """Return what the views have of it."""
    settings = Settings(clickhouse=ClickHouse(url=store.url, database="whole_trace"))
    migrations.apply(settings)
    write_rows(settings, rows_of(scenario))
    rate = PrefillSettingsRow(MODEL, BEGINS - timedelta(days=1), SPEED, GPUS, PRICE, "USD", 1)
    write_rows(settings, [rate])
    client = clickhouse_connect.get_client(dsn=store.url, database="whole_trace")
    end: datetime = BEGINS + timedelta(seconds=int(scenario.requests[-1].seconds))
    parameters = {"from": BEGINS, "to": end}
    between = "(from = {from:DateTime}, to = {to:DateTime})"
    facts = f"SELECT sum(prefill_tokens), sum(avoidable_tokens) FROM replica_facts{between}"
    filled, avoidable = client.query(facts, parameters=parameters).result_rows[0]
    figures: Found = {"filled": filled, "avoidable": avoidable}
    advice = f"SELECT kind, tokens, at_most, finding, action FROM advice{between}"
    for kind, tokens, at_most, finding, action in client.query(advice, parameters=parameters).result_rows:
        print(f"{finding}\n  {action}")  # noqa: T201 - for whoever runs this
        figures[f"advice {kind}"] = tokens
        if kind == "capacity":
            figures["advice capacity, at most"] = at_most
    costs = (
        "SELECT cause, sum(tokens), sum(gpu_seconds), sum(cost) "
        f"FROM prefill_costs{between} WHERE kind = 'lost' GROUP BY cause"
    )
    for cause, tokens, seconds, cost in client.query(costs, parameters=parameters).result_rows:
        figures |= {f"tokens {cause}": tokens, f"GPU-seconds {cause}": seconds, f"cost {cause}": cost}
    client.close()
    return figures


def differing(expected: Found, found: Found) -> list[str]:
    """Return the names of figures that only one of them has, or that are not the same."""
    return [
        name
        for name in sorted(expected.keys() | found.keys())
        if name not in expected
        or name not in found
        or abs(expected[name] - found[name]) > 1e-9 * max(1.0, abs(expected[name]))
    ]


def main() -> int:
    """Print each figure twice; return 1 if two of them differ."""
    with tempfile.TemporaryDirectory() as directory:
        scenario = whole(Path(directory))
        expected = counted(scenario, recount(scenario))
        store = EmbeddedStore(Path(directory) / "store", free_port())
        store.start()
        try:
            found = told(scenario, store)
        finally:
            store.stop()
    different = differing(expected, found)
    for name in sorted(expected.keys() | found.keys()):
        said = "DIFFERS" if name in different else "equal"
        print(f"{name:30} recount {expected.get(name)}  views {found.get(name)}  {said}")  # noqa: T201
    print(f"{len(scenario.requests):,} requests, {BLOCK} tokens a block; {len(different)} figures differ")  # noqa: T201
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
