"""From an engine's batch to a row that a query finds, under the load of many replicas."""

from __future__ import annotations

import time
from collections.abc import Iterable

from checkout import THIS
from figures import Figures

from fleet_load.connector import connectors
from fleet_load.installation import Installation
from fleet_load.load import Load
from fleet_load.measured import Spending
from fleet_load.replicas import BATCHES_A_SECOND, SECONDS, SETTLE_SECONDS
from pipeline.clickhouse.client import connect
from pipeline.local.demo.freshness import FreshnessMeter
from schemas.settings import ClickHouse

EVERY_SECONDS = 0.2
"""Between two queries: a batch counts as seen by the first one that finds it."""
SETTINGS = {
    "defaults": {},
    "fresh": {"KVLENS_CONNECTOR__LINGER_SECONDS": "0.05", "KVLENS_WORKER__CHECKPOINT_SECONDS": "0.5"},
}
"""What the demo has is `fresh`."""
_START_SECONDS = 300.0
_SEEN = """
SELECT replica, argMax(last_seq, version), toUnixTimestamp64Milli(assumeNotNull(max(last_batch_at))) / 1000
FROM {database:Identifier}.stream_health_10s
WHERE window >= now() - 60 AND last_batch_at IS NOT NULL
GROUP BY replica"""


class Seen:
    """Tells the meter of the batches between two queries: a replica's are equally far apart."""

    def __init__(self, meter: FreshnessMeter) -> None:
        self._meter = meter
        self._last: dict[str, int] = {}

    def queried(self, rows: Iterable[tuple[str, int, float]], at: float) -> None:
        """Rows have a replica, its last number and the time of that batch; the first query's do not count."""
        for replica, last, last_at in rows:
            source = (replica, 0)
            for seq in range(self._last.get(replica, last) + 1, last + 1):
                self._meter.published(source, seq, last_at - (last - seq) / BATCHES_A_SECOND)
            self._meter.queryable({source: last}, at)
            self._last[replica] = last


def run(figures: Figures, bootstrap: str, store_url: str, *, replicas: int) -> None:
    """Measure with one connector and one worker, with the defaults and with fresher settings."""
    for name, settings in SETTINGS.items():
        prefix = f"bench-freshness-{replicas}-{name}"
        installation = Installation(THIS, bootstrap, store_url, prefix, settings)
        _measure(figures, installation, replicas, f"freshness, {replicas:,} replicas, {name}")


def _measure(figures: Figures, installation: Installation, replicas: int, name: str) -> None:
    """Measure, and say what both processes take."""
    installation.prepare()
    client = connect(ClickHouse(url=installation.store_url, database=installation.database))
    parameters, meter = {"database": installation.database}, FreshnessMeter()
    with (
        Load("frames", [str(replicas)]) as load,
        installation.workers(["both"]) as workers,
        connectors(installation, load.heard("ready")) as reading,
    ):
        deadline = time.monotonic() + _START_SECONDS
        while workers[0].at_work:
            if time.monotonic() > deadline:
                raise SystemExit("the worker does not start")
            time.sleep(1)
        reading.wait_connected(replicas)
        load.tell("go")
        time.sleep(SETTLE_SECONDS)
        spending = [Spending([process.pid]) for process in (reading.processes[0], workers[0].process)]
        seen, until = Seen(meter), time.monotonic() + SECONDS
        while time.monotonic() < until:
            time.sleep(EVERY_SECONDS)
            rows = client.query(_SEEN, parameters=parameters).result_rows
            seen.queried([(str(replica), int(seq), float(at)) for replica, seq, at in rows], time.time())
        spent = [each.spent() for each in spending]
    client.close()
    for quantile, share in (("p50", 0.5), ("p99", 0.99)):
        seconds = meter.quantile(share)
        if seconds is None:
            raise SystemExit("no batch was seen in the tables")
        figures.add(f"{name}: event to queryable row, {quantile}", seconds, "s")
    for part, each in zip(("connector", "worker"), spent, strict=True):
        figures.add(f"{name}: {part}, CPU", each.cores * 100, "% of a core")
        figures.add(f"{name}: {part}, waited for a core", each.waited * 100, "% of the time")
