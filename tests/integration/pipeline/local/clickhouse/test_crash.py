"""What a killed store keeps: every batch it acknowledged, whole."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client

from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.local.directory import DirectoryInUse

_ROWS = 2000
_KILLS = 3


def _connected(part: EmbeddedStore, until: float) -> Client:
    while True:
        try:
            return clickhouse_connect.get_client(dsn=part.url)
        except Exception:  # whatever a client makes of a store that is not there
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def _write(part: EmbeddedStore, ended: threading.Event, acknowledged: list[int]) -> None:
    """Insert batch after batch, each until it is acknowledged, through kills and restarts."""
    until = time.monotonic() + 60
    client = _connected(part, until)
    batch = 0
    while not ended.is_set():
        rows = [[batch, number] for number in range(_ROWS)]
        try:
            client.insert(
                "d.t",
                rows,
                column_names=["batch", "number"],
                settings={"insert_deduplication_token": f"batch-{batch}"},
            )
        except Exception:  # whatever a client makes of a store that is killed
            if time.monotonic() > until:
                raise
            client = _connected(part, until)
            continue
        acknowledged.append(batch)
        batch += 1


def test_kill_9_during_inserts_loses_doubles_and_halves_nothing_acknowledged(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    part = EmbeddedStore(tmp_path, free_port())
    try:
        part.start()
        client = clickhouse_connect.get_client(dsn=part.url)
        client.command("CREATE DATABASE d")
        client.command(
            "CREATE TABLE d.t (batch UInt32, number UInt32) ENGINE = MergeTree ORDER BY (batch, number) "
            "SETTINGS non_replicated_deduplication_window = 1000"
        )
        client.close()
        acknowledged: list[int] = []
        ended = threading.Event()
        writer = threading.Thread(target=_write, args=(part, ended, acknowledged))
        writer.start()
        for _ in range(_KILLS):
            before = len(acknowledged)
            deadline = time.monotonic() + 60
            while len(acknowledged) < before + 5:
                assert time.monotonic() < deadline, "the writer makes no progress"
                time.sleep(0.01)
            part.kill()
            part.start()
        ended.set()
        writer.join(60)
        assert not writer.is_alive()

        client = clickhouse_connect.get_client(dsn=part.url)
        stored = {
            batch: (count, distinct)
            for batch, count, distinct in client.query(
                "SELECT batch, count(), uniqExact(number) FROM d.t GROUP BY batch"
            ).result_rows
        }
        client.close()
        assert {batch: stored.get(batch) for batch in acknowledged} == dict.fromkeys(
            acknowledged, (_ROWS, _ROWS)
        )
        # A batch that was written but whose answer was lost may be there in addition: whole, and once.
        assert set(stored.values()) == {(_ROWS, _ROWS)}
    finally:
        part.kill()


def test_a_second_owner_of_the_data_is_refused(store: EmbeddedStore, free_port: Callable[[], int]) -> None:
    second = EmbeddedStore(store.directory, free_port(), log=store.directory / "second.log")
    with pytest.raises(DirectoryInUse):
        second.start()
    assert store.ready
