"""LMCache's servers, from their Kafka topic or their requests to tables: what their own directory knows."""

from __future__ import annotations

import json
import secrets
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.settings import Lmcache
from tests.support.committed import wait_committed
from tests.support.inputs.captures import reported, reported_truth
from tests.support.reports import MODEL, NAME, batches, held, make_topic, post, send, used

SERVERS = (f"node-a@{MODEL}", f"node-b@{MODEL}")
KILLS = 5


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("key") / "salts"
    file.write_bytes(b"0123456789abcdef")
    return file


def is_the_truth(pipeline: Any) -> None:
    assert {place: row[:2] for place, row in pipeline.latest_occupancy().items()} == held()
    told = reported_truth(NAME)
    rows = pipeline.query(
        "SELECT replica, sum(batches), sum(lost_batches), sum(undecodable_events), sum(restarts) "
        "FROM {}.stream_health_10s FINAL GROUP BY replica"
    )
    expected = {replica: (count, 0, 0, int(replica == SERVERS[1])) for replica, count in batches().items()}
    assert {replica: tuple(counts) for replica, *counts in rows} == expected
    lives = pipeline.query(
        "SELECT replica, engine, trust, toString(max(incarnation)) FROM {}.sources FINAL "
        "WHERE closed_at IS NULL GROUP BY ALL"
    )
    said = {replica: (engine, trust) for replica, engine, trust, _ in lives}
    assert said == {
        replica: ("lmcache", "complete" if replica in SERVERS else "partial") for replica in batches()
    }
    begun = {replica: int(life) for replica, _, _, life in lives if replica in SERVERS}
    assert begun == {f"{server}@{MODEL}": life * 10**6 for server, (life, _, _) in told["streams"].items()}


def uses_are_those_reported(pipeline: Any) -> None:
    """Bytes, capacity and accesses, of which the storage's are hits."""
    sums = (
        "stored_objects",
        "stored_bytes",
        "accesses",
        "accessed_bytes",
        "first_accesses",
        "unknown_accesses",
        "hits",
        "hit_bytes",
    )
    rows = pipeline.query(
        "SELECT replica, argMax((objects, bytes, capacity_bytes), window), "
        f"{', '.join(f'sum({column})' for column in sums)}, "
        "sum(uses_hist[1]), sum(arraySum(uses_hist)), sum(arraySum(needed_hist)), sum(arraySum(reuse_hist)) "
        "FROM "
        "(SELECT window, replica, sum(objects) AS objects, sum(bytes) AS bytes, "
        "max(capacity_bytes) AS capacity_bytes, "
        f"{', '.join(f'sum({column}) AS {column}' for column in sums)}, "
        "sumForEach(uses_hist) AS uses_hist, sumForEach(needed_hist) AS needed_hist, "
        "sumForEach(reuse_hist) AS reuse_hist FROM {}.objects_10s FINAL GROUP BY window, replica) "
        "GROUP BY replica"
    )
    found = {replica: figures for replica, *figures in rows}
    expected = {}
    for replica, place in used().items():
        figures = place.figures
        is_storage = replica not in SERVERS
        held_bytes = sum(size for size, _ in place.held.values())
        expected[replica] = [
            (len(place.held), held_bytes, place.capacity),
            *(figures[column] for column in sums[:6]),
            figures["accesses"] * is_storage,
            figures["accessed_bytes"] * is_storage,
            figures["left_unused"],
            figures["left"],
            figures["accesses"],
            figures["accesses"],
        ]
    assert found == expected
    directory = {
        (f"{who or 'pool'}@{MODEL}" if tier == "l1" else f"{who or 'pool'}:{backend}@{MODEL}"): size
        for tier, by_server in reported_truth(NAME)["bytes"].items()
        for who, by_backend in by_server.items()
        for backend, size in by_backend.items()
    }
    assert {replica: figures[0][1] for replica, figures in found.items()} == directory


@pytest.mark.night
def test_killed_again_and_again_the_tables_are_those_of_the_directory(
    new_pipeline: Callable[..., Any], key_file: Path
) -> None:
    topic = f"cache-events-{secrets.token_hex(4)}"
    lmcache = Lmcache(
        models=MODEL, topic=topic, group=topic, salt_key_file=str(key_file), l2_prefetch_policy="retain"
    )
    pipeline = new_pipeline(lmcache=lmcache)
    kafka = pipeline.settings.kafka.bootstrap_servers
    # What two servers say of one pool has the order of one partition; else it has any.
    make_topic(kafka, topic, 1)
    records = reported(NAME, "records")
    worker = pipeline.start("work")
    share = len(records) // (KILLS + 1)
    for turn in range(KILLS):
        connector = pipeline.start("connect")
        send(kafka, topic, records[turn * share : (turn + 1) * share])
        connector.wait_said("source_opened" if turn == 0 else "positions_loaded")
        time.sleep(0.3 * turn)
        connector.kill()
        if turn % 2:
            worker.kill()
            worker = pipeline.start("work")
    send(kafka, topic, records[KILLS * share :])
    connector = pipeline.start("connect")
    pipeline.wait_batches(batches(), 120.0)
    wait_committed(kafka, topic, topic, 1, len(records))
    pipeline.finish(connector, worker)
    is_the_truth(pipeline)
    uses_are_those_reported(pipeline)


def one_object(server: str, seq: int, at: float) -> tuple[bytes, bytes]:
    """A server stores a chunk in its memory."""
    key = {"chunk_hash_hex": f"{seq:064x}", "model_name": MODEL, "kv_rank": 1 << 24}
    batch = {"instance_id": server, "incarnation": 1_790_000_000, "seq": seq, "event_type": "store"}
    batch |= {"tier": "l1", "backend": "dram", "ts": at, "entries": [{"key": key, "size_bytes": 1}]}
    return server.encode(), json.dumps({"batches": [batch]}).encode()


@pytest.mark.night
def test_of_a_topic_of_a_week_only_what_lives_has_anything(new_pipeline: Callable[..., Any]) -> None:
    """One server died a week ago, one that made up its id an hour ago; one reports every day."""
    topic, now, day = f"cache-events-{secrets.token_hex(4)}", time.time(), 86_400.0
    died, made_up, lives = "node-died", str(uuid.uuid4()), "node-lives"
    lmcache = Lmcache(models=MODEL, topic=topic, group=topic, silent_seconds=2 * day)
    pipeline = new_pipeline(lmcache=lmcache)
    kafka = pipeline.settings.kafka.bootstrap_servers
    make_topic(kafka, topic, 4)
    for seq in range(1, 8):
        at = now - (8 - seq) * day
        send(kafka, topic, [one_object(lives, seq, at)], at)
        if seq == 1:
            send(kafka, topic, [one_object(died, seq, at)], at)
    send(kafka, topic, [one_object(made_up, 1, now - 3600.0)], now - 3600.0)
    worker, connector = pipeline.start("work"), pipeline.start("connect")
    ends = "SELECT replica, toString(closed_reason) || ', ' || toString(trust) FROM {}.sources FINAL"
    expected = {died: "silent, complete", made_up: "silent, complete", lives: ", complete"}
    expected = {f"{server}@{MODEL}": how for server, how in expected.items()}
    pipeline.wait_rows(ends, expected, 120.0)
    pipeline.finish(connector, worker)
    assert dict(pipeline.query(ends)) == expected
    held_at_last = {place[0]: row[1] for place, row in pipeline.latest_occupancy().items() if row[1]}
    assert held_at_last == {f"{lives}@{MODEL}": 7}


def test_requests_come_to_the_same(
    new_pipeline: Callable[..., Any], key_file: Path, free_port: Callable[[], int]
) -> None:
    token = secrets.token_hex(16)
    lmcache = Lmcache(
        models=MODEL,
        port=free_port(),
        token=token,
        salt_key_file=str(key_file),
        l2_prefetch_policy="retain",
    )
    pipeline = new_pipeline(lmcache=lmcache)
    worker, connector = pipeline.start("work"), pipeline.start("connect")
    connector.wait_said("connector_started")
    for content_type, body in reported(NAME, "posts"):
        post(lmcache.port, content_type.decode(), body, token)
    pipeline.wait_batches(batches(), 120.0)
    pipeline.finish(connector, worker)
    is_the_truth(pipeline)
    uses_are_those_reported(pipeline)
