"""A worker without ClickHouse: its figures in Kafka are what the log says, also after a kill.

Records are JSON with the ids of their schemas, and an OpenTelemetry receiver is away.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.verify import times
from pipeline.verify.findings import Findings
from pipeline.verify.keys import KEYS
from pipeline.verify.replica.partition import PartitionCheck
from pipeline.worker.exits import ExitCode
from schemas import metrics
from schemas.figures import FIGURES
from schemas.rows import EngineCountersRow, FlowRow, ObjectsRow, OccupancyRow, StreamHealthRow
from schemas.settings import Otlp
from tests.support.client_partition import client_partition
from tests.support.figures_topic import figures_in
from tests.support.patience import PATIENCE
from tests.support.schema_registry import SchemaRegistry, schema_registry

Make = Callable[..., Any]
OF_A_SOURCE = (OccupancyRow, FlowRow, StreamHealthRow, ObjectsRow, EngineCountersRow)
KEYS_BY_TABLE: dict[str, tuple[str, ...]] = {kind.TABLE: KEYS[kind] for kind in FIGURES}  # type: ignore[attr-defined]


def fleet_page(port: int) -> dict[tuple[str, ...], float]:
    """The samples of the worker's page of figures, when it has some."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/fleet/metrics", timeout=PATIENCE) as answer:
            text = answer.read().decode()
        found = {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        if any(name[0] == "kvlens_fleet_streams" for name in found):
            return found
        assert time.monotonic() < deadline, text
        time.sleep(0.2)


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as lent:
        yield lent


def registered(registry: SchemaRegistry) -> Callable[[bytes], bytes]:
    """What checks a value by the schema that it names, and gives its JSON."""
    validators: dict[int, Any] = {}

    def plain(value: bytes) -> bytes:
        assert value[0] == 0
        number = int.from_bytes(value[1:5], "big")
        if number not in validators:
            validators[number] = jsonschema.Draft202012Validator(registry.schema(number))
        validators[number].validate(json.loads(value[5:]))
        return value[5:]

    return plain


def posted(port: int, outcome: str) -> float:
    """How often figures were posted to the receiver with that outcome, when they were."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
            text = answer.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == metrics.Otlp.exports.name and sample.labels["outcome"] == outcome:
                    return sample.value
        assert time.monotonic() < deadline, text
        time.sleep(0.2)


def test_figures_are_what_the_log_says_after_a_kill(
    broker: EmbeddedBroker,
    new_laboratory: Make,
    generated: Make,
    free_port: Callable[[], int],
    registry: SchemaRegistry,
) -> None:
    # Each has transactions of its own, which cost the broker more than what is in them.
    laboratory = new_laboratory(broker, None, partitions=3, checkpoint_seconds=1.0, metrics_port=free_port())
    otlp = Otlp(endpoint=f"http://127.0.0.1:{free_port()}/v1/metrics")
    kafka = msgspec.structs.replace(
        laboratory.settings.kafka, record_format="json", schema_registry_url=registry.url
    )
    laboratory.settings = msgspec.structs.replace(laboratory.settings, otlp=otlp, kafka=kafka)
    # At a full minute: the page has what is settled up to one, and the second worker only the later half.
    log = generated(5, replicas=4, rounds=40, began=time.time() // 60 * 60 - 300)
    killed = laboratory.worker()
    laboratory.produce(log[:80])
    laboratory.wait_applied(20)
    killed.kill()
    laboratory.produce(log[80:])
    worker = laboratory.worker()
    laboratory.wait_applied(len(log))
    laboratory.wait_followed()
    page = fleet_page(laboratory.settings.worker.metrics_port)
    assert sum(count for name, count in page.items() if name[0] == "kvlens_fleet_streams") == 4
    assert posted(laboratory.settings.worker.metrics_port, "unreachable")
    assert worker.end() == ExitCode.OK
    partitions = asyncio.run(figures_in(laboratory.settings.kafka, KEYS_BY_TABLE, registered(registry)))
    compared = recounted(laboratory, log, partitions)
    assert all(compared[kind.TABLE] for kind in (OccupancyRow, FlowRow, StreamHealthRow)), compared
    assert by_replica(partitions, "fills_10s") == by_replica(partitions, "flow_10s")


def recounted(laboratory: Any, log: list[Any], partitions: list[Any]) -> Counter[str]:
    """Compare what is of a source with a recount of the log; return how many rows it compared, by table."""
    findings = Findings()
    tables = {kind.TABLE: kind for kind in OF_A_SOURCE}
    for partition, newest in enumerate(partitions):
        found: defaultdict[tuple[str, int], list[Any]] = defaultdict(list)
        for (table, *_), figure in newest.items():
            if table in tables:
                row = msgspec.convert(figure, tables[table], strict=False)
                found[row.replica, row.dp_rank].append(row)
        records = [record for record in log if client_partition(record.replica, len(partitions)) == partition]
        end = len(records)
        check = PartitionCheck(
            laboratory.settings.worker, found, findings, begin=0, committed=end, oldest=times.EPOCH
        )
        for offset, record in enumerate(records):
            check.apply(offset, record)
        check.finish(end)
    assert not [one for one in findings.kept if one.table in tables], findings.kept[:3]
    return findings.compared


def by_replica(partitions: list[Any], table: str) -> Counter[str]:
    """Blocks filled on GPUs: their causes add up to them."""
    filled: Counter[str] = Counter()
    for newest in partitions:
        for figure in newest.values():
            if figure["table"] == table and figure.get("medium", "gpu") == "gpu":
                filled[figure["replica"]] += figure["filled_blocks"]
    return filled
