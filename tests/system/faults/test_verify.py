"""`kvlens verify` on a real broker and store: equal after a run, never different beside one, and planted
differences are named."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from itertools import chain, zip_longest
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from connectors.kafka.topics import topic_name
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.verify.against_log import HELD_BACK, check_log
from pipeline.verify.findings import Findings
from pipeline.verify.keys import KEYS
from pipeline.verify.rollups.check import FAMILIES
from schemas.events import Batch, EventsRecord, Removed, Stored
from tests.support.inputs.generated_logs import shared_log
from tests.support.inputs.source_walks import Walk
from tests.support.patience import PATIENCE
from tests.support.processes import kvlens

pytestmark = pytest.mark.night

Make = Callable[..., Any]
FINE = ("occupancy_10s", "flow_10s", "stream_health_10s", "engine_counters", "sources")
FLEET = ("fills_10s", "redundancy_10s", "capacity_curve_10s", "hot_prefixes_10s")
PARTITIONS = 8
ROLLED_UP = tuple(f"{name}_{per}" for name in FAMILIES for per in ("1m", "1h"))
PLANTED = (
    ("occupancy_10s", "entries"),
    ("occupancy_10s", "tokens"),
    ("flow_10s", "filled_blocks"),
    ("flow_10s", "evicted_tokens"),
    ("stream_health_10s", "batches"),
    ("stream_health_10s", "last_seq"),
    ("engine_counters", "prefix_cache_hits"),
    ("sources", "first_seq"),
    ("sources", "last_seq"),
    ("fills_10s", "filled_tokens"),
    ("fills_10s", "cold_tokens"),
    ("redundancy_10s", "owners_2"),
    ("redundancy_10s", "physical_tokens"),
    ("capacity_curve_10s", "sampled_one_in"),
    ("hot_prefixes_10s", "owners"),
    ("hot_prefixes_10s", "refilled_tokens"),
    *((table, "windows") for table in ROLLED_UP),
)


def checked(laboratory: Any, **options: Any) -> Findings:
    given = {"until": None, "patience": 0.0, **options}
    return asyncio.run(check_log(laboratory.settings, datetime.now(timezone.utc), **given))


def refilled(*, after: float) -> EventsRecord:
    """A block that comes, goes and comes back in a window that is surely over: another comes later."""
    block, other = bytes(7) + b"\1", bytes(7) + b"\2"
    events = ((100, Stored(block, 16, 16)), (101, Removed(block)), (102, Stored(block, 16, 16)))
    batches = [
        Batch(seq, after + seconds, after + seconds, [event])
        for seq, (seconds, event) in enumerate((*events, (130, Stored(other, 16, 16))))
    ]
    return EventsRecord("refilled", "m", "m/d", 0, 1, batches, 0, len(batches) - 1)


@pytest.fixture(scope="module")
def finished(broker: EmbeddedBroker, store: EmbeddedStore, laboratories: Make) -> Iterator[Any]:
    """Sources with everything that can happen to one, and a worker that has read them to the end."""
    laboratory = laboratories(broker, store, idle_carry_seconds=60.0)
    began = time.time() - 3 * 3600  # they pass in less than two hours, so all hours are over
    walks = [Walk(n, hybrid=n == 2, replica=f"replica-{n}", began=began).records(40) for n in range(4)]
    log = [record for record in chain.from_iterable(zip_longest(*walks)) if record is not None]
    log.append(refilled(after=max(batch.received_at for record in log for batch in record.batches)))
    laboratory.produce(log)
    worker = laboratory.worker()
    laboratory.wait_applied(len(log))
    laboratory.wait_followed()
    # What came last counts once all partitions have said that they are read beyond it.
    deadline = time.monotonic() + PATIENCE
    while not laboratory.table("hot_prefixes_10s"):
        assert time.monotonic() < deadline, worker.said()[-1500:]
        time.sleep(0.3)
    assert worker.end() == 0
    yield laboratory
    laboratory.close()


def test_nothing_differs_after_an_orderly_run(finished: Any) -> None:
    findings = checked(finished)
    assert findings.equal, findings.kept[:3]
    compared = {table for table, rows in findings.compared.items() if rows}
    assert compared == {*FINE, *FLEET, *ROLLED_UP, "hash_groups", "residency", "prefill_costs", "figures"}
    for table in (*FINE, *FLEET):
        assert findings.compared[table] == len(finished.table(table))
    assert not findings.left_out


@pytest.mark.parametrize("order", ["ALL", "ALL DESC"], ids=["oldest", "newest"])
def test_planted_figures_are_found_and_named(finished: Any, order: str) -> None:
    """Wrong figures in every table, 30 in all; then each is as it was."""
    database = finished.settings.clickhouse.database
    right: dict[tuple[str, str], Any] = {}

    def put(table: str, column: str, value: Any) -> None:
        place = f"{database}.{table}"
        version = "version" if table in (*FINE, *FLEET) else "version + 1"
        changed = f"{'NULL' if value is None else value} AS {column}, {version} AS version"
        finished.command(
            f"INSERT INTO {place} SELECT * REPLACE ({changed}) FROM {place} FINAL ORDER BY {order} LIMIT 1"
        )

    for table, column in PLANTED:
        first = f"(SELECT * FROM {database}.{table} FINAL ORDER BY {order} LIMIT 1)"
        [(right[table, column],)] = finished.query(f"SELECT {column} FROM {first}")
        put(table, column, (right[table, column] or 0) + 1000)
    findings = checked(finished)
    for table, column in PLANTED:
        put(table, column, right[table, column])
    for table, column in PLANTED:
        mine = [one for one in findings.kept if one.table == table and column in one.expected]
        was = right[table, column]
        found = [(one.kind, one.expected[column], one.found[column]) for one in mine]
        assert found == [("differs", was, (was or 0) + 1000)], (table, column)
    assert checked(finished).equal


def test_rows_that_rest_on_fewer_records_than_were_committed_are_found(finished: Any) -> None:
    findings = checked(finished, until=10)
    assert findings.equal, findings.kept[:3]
    assert findings.left_out["rests on records that came after the comparison had begun"] > 0


def kvlens_verify(laboratory: Any, *arguments: str, **changed: str) -> tuple[int, str, str]:
    kafka, store = laboratory.settings.kafka, laboratory.settings.clickhouse
    settings = {
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "KVLENS_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
        "KVLENS_KAFKA__GROUP": kafka.group,
        "KVLENS_CLICKHOUSE__URL": store.url,
        "KVLENS_CLICKHOUSE__DATABASE": store.database,
        "KVLENS_WORKER__IDLE_CARRY_SECONDS": "60",
        **changed,
    }
    return kvlens("verify", *arguments, cwd=laboratory.directory, **settings)


def test_the_command_says_equal_different_or_cannot(finished: Any) -> None:
    code, output, errors = kvlens_verify(finished)
    assert (code, errors) == (0, "")
    assert output.splitlines()[-1] == "the tables are what the log says"

    # Other settings give other figures, of which the first are shown.
    changed = {"KVLENS_WORKER__IDLE_CARRY_SECONDS": "1"}
    code, output, errors = kvlens_verify(finished, "--json", **changed)
    assert (code, errors) == (1, "")
    told = json.loads(output)
    assert (told["equal"], told["verdict"]) == (False, "different")
    assert told["tables"]["occupancy_10s"]["differing"] > 0
    assert told["differences"][0].keys() == {"table", "key", "kind", "expected", "found", "remarks"}

    code, output, errors = kvlens_verify(finished, KVLENS_CLICKHOUSE__URL="http://127.0.0.1:1")
    assert (code, output) == (2, "")
    assert errors.startswith("kvlens: ClickHouse at http://127.0.0.1:1 cannot be used: ")
    code, output, errors = kvlens_verify(finished, KVLENS_KAFKA__TOPIC_PREFIX="nothing")
    assert (code, output) == (2, "")
    assert errors == "kvlens: topic nothing.events.v1 does not exist; run `kvlens topics apply`\n"


def test_missing_and_additional_rows_are_found(finished: Any) -> None:
    database = finished.settings.clickhouse.database
    every = (*FINE, *FLEET)
    columns = {kind.TABLE: ", ".join((*KEYS[kind], "version")) for kind in KEYS}  # type: ignore[attr-defined]
    for table in every:
        keys = columns[table]
        place, aside = f"{database}.{table}", f"{database}.aside_{table}"
        # Without the version that counts, an earlier one would show.
        finished.command(f"OPTIMIZE TABLE {place} FINAL")
        first = f"SELECT * FROM {place} FINAL WHERE model = 'm' ORDER BY version LIMIT 1"
        finished.command(f"CREATE TABLE {aside} ENGINE = Memory AS {first}")
        finished.command(f"INSERT INTO {place} SELECT * REPLACE ('other' AS model) FROM {aside}")
        delete = f"ALTER TABLE {place} DELETE WHERE {{}} SETTINGS mutations_sync = 1"
        finished.command(delete.format(f"({keys}) IN (SELECT {keys} FROM {aside})"))
    found = {(one.table, one.kind, one.key["model"]) for one in checked(finished).kept if one.table in every}
    assert found == {
        (table, *which) for table in every for which in (("unexpected", "other"), ("missing", "m"))
    }


@pytest.fixture(scope="module")
def working(broker: EmbeddedBroker, store: EmbeddedStore, laboratories: Make) -> Iterator[Any]:
    """A worker that runs, and has read nothing yet."""
    laboratory = laboratories(broker, store, idle_carry_seconds=60.0)
    laboratory.worker().wait_assigned()
    yield laboratory
    laboratory.close()


def test_nothing_differs_beside_a_fleet_that_works(working: Any) -> None:
    """Windows of four minutes up to now pass in some seconds; verify runs again and again meanwhile."""
    log = shared_log(5, replicas=6, rounds=60, began=time.time() - 240)
    traffic = threading.Thread(target=working.produce, args=(log,), kwargs={"over_seconds": 9.0})
    traffic.start()
    runs: list[Findings] = []
    while traffic.is_alive() or len(runs) < 2:
        runs.append(checked(working, patience=4.0))
    traffic.join(PATIENCE)
    assert not traffic.is_alive(), f"not done after {PATIENCE:g} s"
    working.wait_applied(len(log))
    working.wait_followed()
    runs.append(checked(working, patience=4.0))
    for findings in runs:
        assert not findings.differing, findings.kept[:3]
    assert runs[-1].compared["residency"] > 0


def test_what_an_open_transaction_hides_is_late(working: Any) -> None:
    """Offsets of other partitions go on then, but the records behind it cannot be read."""
    asyncio.run(behind_an_open_transaction(working))


async def behind_an_open_transaction(working: Any) -> None:
    kafka = working.settings.kafka
    log = shared_log(6, replicas=4, rounds=5, began=time.time() - 3600)
    for record in log:
        record.replica = f"hidden-{record.replica}"
    before = await asyncio.to_thread(working.committed)
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers,
        transactional_id=kafka.group,
        transaction_timeout_ms=600_000,
    ) as killed:
        await killed.begin_transaction()
        for shard in range(PARTITIONS):
            await killed.send_and_wait(topic_name(kafka, "residency"), b"", partition=shard)
        await asyncio.to_thread(working.produce, log)
        await asyncio.to_thread(working.wait_applied, before + len(log))
        code, output, errors = await asyncio.to_thread(kvlens_verify, working, "--patience", "1.5", "--json")
        assert (code, errors) == (3, ""), output
        told = json.loads(output)
        assert (told["verdict"], told["equal"], told["differences"]) == ("late", False, [])
        reasons = {one["reason"] for one in told["late"] if one["table"] == "residency"}
        assert reasons == {f"{HELD_BACK} 0, 1, 2, 3, 4, 5, 6, 7"}
        await killed.abort_transaction()
    await asyncio.to_thread(working.wait_followed)
    findings = await asyncio.to_thread(checked, working, patience=10.0)
    assert findings.equal, (findings.kept[:3], findings.late)
