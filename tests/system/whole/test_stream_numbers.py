"""Engines with every trouble there is: metrics, stream health, sources and doctor tell the same of them."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq
from prometheus_client.parser import text_string_to_metric_families

from pipeline.simulator.engine.settings import EngineSettings
from pipeline.simulator.metrics_endpoint import EngineFigures, MetricsEndpoint, exposition
from pipeline.simulator.publisher import Publisher, PublisherSettings
from pipeline.simulator.source import Source
from pipeline.simulator.traffic.requests import Request
from pipeline.simulator.wire.eras import ERAS
from tests.support.processes import kvlens

pytestmark = pytest.mark.night

ANY_PORT = "tcp://127.0.0.1:0"
BLOCKS = 60
DRIFT_CAPACITY = 21
SILENT_SECONDS = 12.0
DROPPED = {"filled": 5, "lost": 7}
COLUMNS = {
    "batches": "kvlens_connector_batches_total",
    "events": "kvlens_connector_engine_events_total",
    "duplicate_batches": "kvlens_connector_duplicate_batches_total",
    "replayed_batches": "kvlens_connector_replayed_batches_total",
    "lost_batches": "kvlens_connector_lost_batches_total",
    "restarts": "kvlens_connector_restarts_total",
    "undecodable_events": "kvlens_connector_undecodable_total",
}
"""Column of stream_health_10s to the metric that counts the same."""


class Simulated:
    """An engine under load of its own, on sockets that can be hurt."""

    def __init__(self, name: str, context: zmq.Context[zmq.Socket[bytes]], *, replay: bool) -> None:
        self.name = name
        settings = PublisherSettings(ANY_PORT, ANY_PORT if replay else None)
        self.publisher = Publisher(settings, context)
        self.source = Source(name, EngineSettings(num_blocks=BLOCKS), ERAS["vllm-0.33"], self.publisher)
        self._tokens = count(1_000_000)

    def work(self, batches: int) -> None:
        """Publish about so many batches."""
        end = self.publisher.published + batches
        while self.publisher.published < end:
            prompt = tuple(next(self._tokens) for _ in range(100))
            self.source.submit(Request("s", prompt, (1, 2)))
            while self.source.engine.busy:
                self.source.step(time.time())
            time.sleep(0.002)

    @property
    def resident(self) -> int:
        return self.source.engine.pool.physical


@dataclass
class Outcome:
    """What everybody said while the processes were still running."""

    pipeline: Any
    engines: dict[str, Simulated]
    expected: dict[str, dict[str, int]]
    health: dict[str, dict[str, int]] = field(default_factory=dict)
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    troubled: dict[str, float] = field(default_factory=dict)
    diagnosis: dict[str, Any] = field(default_factory=dict)


def replica_toml(name: str, endpoint: str, replay: str | None, metrics: str | None) -> str:
    lines = ["", "[[replicas]]", f'id = "{name}"', 'model = "m"', f'endpoint = "{endpoint}"']
    if replay:
        lines.append(f'replay_endpoint = "{replay}"')
    if metrics:
        lines.append(f'metrics_url = "{metrics}"')
    return "\n".join(lines)


@pytest.fixture(scope="module")
def nobody() -> Iterator[list[str]]:
    """Two addresses at which nothing listens."""
    with socket.socket() as first, socket.socket() as second:
        for holder in (first, second):
            holder.bind(("127.0.0.1", 0))
        yield [f"tcp://127.0.0.1:{holder.getsockname()[1]}" for holder in (first, second)]


@pytest.fixture(scope="module")
def outcome(new_pipeline: Callable[..., Any], nobody: list[str]) -> Iterator[Outcome]:
    replayed = {
        "filled": True,
        "lost": False,
        "restarted": True,
        "idle": True,
        "gone": True,
        "drifting": True,
    }
    with ExitStack() as stack:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        stack.callback(context.destroy, 0)
        engines = {name: Simulated(name, context, replay=replay) for name, replay in replayed.items()}
        for name in replayed.keys() - {"gone"}:
            stack.callback(engines[name].publisher.close)
        hangs_up = ExitStack()
        hangs_up.callback(engines["gone"].publisher.close)
        stack.callback(hangs_up.close)
        figures = EngineFigures(0, 0, 0, 0, 0, 0.5, 16, DRIFT_CAPACITY)
        pages = MetricsEndpoint({"drifting": lambda: exposition("m", [figures])})
        stack.callback(pages.close)
        pipeline = new_pipeline("messy", silent_seconds=SILENT_SECONDS)
        config = pipeline.directory / "kvlens.toml"
        replicas = [
            replica_toml(
                name,
                engine.publisher.endpoint,
                engine.publisher.replay_endpoint,
                pages.url(name) if name == "drifting" else None,
            )
            for name, engine in engines.items()
        ]
        replicas.append(replica_toml("never", *nobody, None))
        config.write_text("\n".join([config.read_text(), *replicas, ""]))
        pipeline.start("work")
        pipeline.start("connect")
        pipeline.wait_subscribed()
        for engine in engines.values():
            assert engine.publisher.wait_subscribers(1, 60)
        wait_first_answers(pipeline, {name for name, replay in replayed.items() if replay})
        # What an engine says falls into one window.
        while time.time() % 10 > 2:
            time.sleep(0.05)

        expected = trouble(engines)
        expected["messy"] = mess(pipeline)
        outcome = Outcome(pipeline, engines, expected)
        batches = {name: known["batches"] for name, known in expected.items()}
        pipeline.wait_rows(
            "SELECT replica, sum(batches) FROM {}.stream_health_10s FINAL "
            "WHERE replica != 'never' GROUP BY 1",
            batches,
        )
        hangs_up.close()
        # Nothing was ever heard of `never`; that it has a row at all takes a report of the connector.
        reported = {name: name not in ("gone", "never") for name in batches | {"never": 0}}
        pipeline.wait_rows(
            "SELECT replica, argMax(connected, window) FROM {}.stream_health_10s FINAL GROUP BY 1", reported
        )
        pipeline.wait_rows(
            "SELECT replica, closed_reason FROM {}.sources FINAL WHERE replica = 'gone'", {"gone": "silent"}
        )
        # The last duplicates come with the next record, at the latest a report.
        pipeline.wait_rows(
            "SELECT replica, sum(duplicate_batches) FROM {}.stream_health_10s FINAL "
            "WHERE replica = 'messy' GROUP BY 1",
            {"messy": expected["messy"]["duplicate_batches"]},
        )
        sums = ", ".join(f"sum({name}) AS {name}" for name in [*COLUMNS, "gap_batches"])
        outcome.health = {
            row.pop("replica"): row
            for row in pipeline.dicts(
                f"SELECT replica, {sums} FROM {{}}.stream_health_10s FINAL GROUP BY replica"
            )
        }
        outcome.metrics = connector_counts(pipeline.metrics("connector"))
        outcome.troubled = troubled(pipeline.metrics("worker"))
        code, outcome.diagnosis = said_by(pipeline, "doctor")
        assert code == outcome.diagnosis["exit_code"]
        yield outcome


def wait_first_answers(pipeline: Any, names: set[str]) -> None:
    """Return when the engines have told what was before: what comes in that way was not due live."""
    deadline = time.monotonic() + 60
    while names > (answered := answered_replays(pipeline.metrics("connector"))):
        assert time.monotonic() < deadline, answered
        time.sleep(0.05)


def answered_replays(page: str) -> set[str]:
    """Replicas of which a request for a replay is over."""
    return {
        sample.labels["replica"]
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "kvlens_connector_replay_requests_total" and sample.value
    }


def trouble(engines: dict[str, Simulated]) -> dict[str, dict[str, int]]:
    """Hurt the engines; return what must be counted of each, by column."""
    for engine in engines.values():
        engine.work(20)
    for name, dropped in DROPPED.items():
        engines[name].publisher.drop_next(dropped)
        engines[name].work(20)
    first_life = engines["restarted"].publisher.published
    engines["restarted"].source.restart()
    engines["restarted"].work(10)
    expected = {
        name: {**dict.fromkeys(COLUMNS, 0), "batches": engine.publisher.published, "gap_batches": 0}
        for name, engine in engines.items()
    }
    expected["restarted"]["batches"] += first_life
    expected["restarted"]["restarts"] = 1
    expected["lost"]["lost_batches"] = DROPPED["lost"]
    expected["lost"]["batches"] -= DROPPED["lost"]
    expected["lost"]["gap_batches"] = DROPPED["lost"]
    return expected


def mess(pipeline: Any) -> dict[str, int]:
    """Send batches with all that can be wrong with them beside a gap; return what must be counted."""
    good = [frames(number) for number in range(12)]
    for number, message in enumerate(good):
        if number == 10:
            # A number that was used for something nobody understands is no gap.
            message = [message[0], message[1], b"\xc1"]
        pipeline.publish("messy", message)
        if number in (3, 4, 9):
            pipeline.publish("messy", message)
        if number == 6:
            pipeline.publish("messy", message[:2])
    counted = dict.fromkeys([*COLUMNS, "gap_batches"], 0)
    return counted | {"batches": 11, "events": 33, "duplicate_batches": 3, "undecodable_events": 13}


def frames(number: int) -> list[bytes]:
    """A batch of two good events and one of a type that nobody knows."""
    stored = ["BlockStored", [number * 2, number * 2 + 1], None, [0] * 32, 16, None, "GPU", None]
    events = [stored, ["BlockExploded"], ["BlockRemoved", [number * 2], "GPU"]]
    payload = msgspec.msgpack.encode([time.time(), events, 0])
    return [b"", number.to_bytes(8, "big"), payload]


def connector_counts(page: str) -> dict[str, dict[str, float]]:
    """Replica to column to what the connector counted."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            for column, name in COLUMNS.items():
                if sample.name == name:
                    of_replica = found.setdefault(sample.labels["replica"], dict.fromkeys(COLUMNS, 0.0))
                    of_replica[column] += sample.value
    return found


def troubled(page: str) -> dict[str, float]:
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == "kvlens_worker_troubled_sources":
                found[sample.labels["trouble"]] += sample.value
    return dict(found)


def said_by(pipeline: Any, command: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document of a command with `--json`."""
    code, output, errors = kvlens(command, "--json", "--config", "kvlens.toml", cwd=pipeline.directory)
    assert output, errors
    return code, json.loads(output)


def test_each_trouble_is_counted_where_it_belongs(outcome: Outcome) -> None:
    for name, expected in outcome.expected.items():
        found = {column: outcome.health[name][column] for column in expected}
        if name != "messy":
            found["events"] = 0
        if outcome.engines.get(name) and name != "lost":
            # What was on its way when the engine answered comes twice, and counts where it came first.
            missing = DROPPED.get(name, 0) + found.pop("duplicate_batches")
            assert found.pop("replayed_batches") == found.pop("gap_batches") == missing
        assert found == {column: expected[column] for column in found}, name
    assert set(outcome.health["never"].values()) == {0}


def test_metrics_and_stream_health_tell_the_same_numbers(outcome: Outcome) -> None:
    health = {name: {column: counts[column] for column in COLUMNS} for name, counts in outcome.health.items()}
    assert outcome.metrics == health


def test_a_filled_gap_leaves_no_trace_in_the_figures(outcome: Outcome) -> None:
    occupancy = {
        replica: (entries, trust)
        for (replica, _, _), (entries, _, _, trust) in outcome.pipeline.latest_occupancy().items()
    }
    for name in ("filled", "restarted", "idle", "drifting"):
        assert occupancy[name] == (outcome.engines[name].resident, "complete"), name
    assert occupancy["lost"][1] == "degraded"


def test_rows_of_the_windows_in_which_nothing_came_show_it(outcome: Outcome) -> None:
    rows = outcome.pipeline.query(
        "SELECT replica, window, connected, batches, last_batch_at, last_seq FROM {}.stream_health_10s FINAL "
        "WHERE replica IN ('idle', 'gone', 'never') ORDER BY replica, window"
    )
    windows: dict[str, list[tuple[Any, ...]]] = {}
    for replica, *row in rows:
        windows.setdefault(replica, []).append(tuple(row))
    for name, mine in windows.items():
        starts = [start.timestamp() for start, *_ in mine]
        assert starts == list(np.arange(starts[0], starts[-1] + 1, 10)), f"{name}: a window is missing"
        assert mine[-1][2] == 0, name
    assert [row[1] for row in windows["idle"]] == [True] * len(windows["idle"])
    assert [row[1] for row in windows["gone"]][-1] is False
    assert windows["gone"][0][1] is True
    assert {(row[1], row[3], row[4]) for row in windows["never"]} == {(False, None, -1)}
    last = outcome.engines["idle"].publisher.last_sequence
    assert {row[4] for row in windows["idle"][-1:]} == {last}
    assert len({row[3] for row in windows["idle"]}) == 1


def test_sources_have_the_lives_that_were_heard(outcome: Outcome) -> None:
    lives = outcome.pipeline.query(
        "SELECT replica, groupArray(closed_reason), groupArray(trust) FROM "
        "(SELECT * FROM {}.sources FINAL ORDER BY incarnation) GROUP BY replica"
    )
    assert {name: (reasons, trusts) for name, reasons, trusts in lives} == {
        "restarted": (["restarted", ""], ["complete", "complete"]),
        "lost": ([""], ["degraded"]),
        "messy": ([""], ["degraded"]),
        "gone": (["silent"], ["complete"]),
        **{name: ([""], ["complete"]) for name in ("filled", "idle", "drifting")},
    }


def test_blocks_of_an_engine_that_was_given_up_leave_the_fleet_as_cleared(outcome: Outcome) -> None:
    resident = outcome.engines["gone"].resident
    assert resident > 0
    ((closed,),) = outcome.pipeline.query(
        "SELECT toUnixTimestamp64Milli(closed_at) / 1000 FROM {}.sources FINAL WHERE replica = 'gone'"
    )
    rows = outcome.pipeline.query(
        "SELECT toUnixTimestamp(window), sum(entries) FROM {}.occupancy_10s FINAL WHERE replica = 'gone' "
        "GROUP BY 1 ORDER BY 1"
    )
    assert {start: entries for start, entries in rows if start + 10 <= closed} != {}
    for start, entries in rows:
        assert entries == (resident if start + 10 <= closed else 0), (start, closed)
    assert rows[-1][1] == 0
    cleared = outcome.pipeline.query(
        "SELECT toUnixTimestamp(window), cleared_blocks FROM {}.flow_10s FINAL "
        "WHERE replica = 'gone' AND cleared_blocks > 0"
    )
    assert cleared == [(closed // 10 * 10, resident)]


def test_drift_is_what_is_resident_beyond_the_engines_capacity(outcome: Outcome) -> None:
    rows = outcome.pipeline.query(
        "SELECT replica, argMax(drift_blocks, window), tupleElement(argMax(tuple(drift_since), window), 1) "
        "IS NOT NULL FROM {}.stream_health_10s FINAL GROUP BY replica ORDER BY replica"
    )
    drift = {replica: (blocks, known) for replica, blocks, known in rows}
    resident = outcome.engines["drifting"].resident
    assert drift.pop("drifting") == (resident - (DRIFT_CAPACITY - 1), 1)
    assert set(drift.values()) == {(0, 0)}


def test_the_worker_counts_sources_in_trouble(outcome: Outcome) -> None:
    assert outcome.troubled == {"partial": 0, "degraded": 2, "disconnected": 2, "drifting": 1, "limited": 0}


def test_the_doctor_finds_all_of_it_and_nothing_else(outcome: Outcome) -> None:
    diagnosis = outcome.diagnosis
    found = {finding["code"]: finding["subjects"] for finding in diagnosis["findings"]}
    assert "filled/0" in found.pop("gaps-filled")
    assert found == {
        "source-disconnected": ["gone/0", "never/0"],
        "trust-degraded": ["lost/0", "messy/0"],
        "undecodable": ["messy/0"],
        "unknown-type": ["messy/0"],
        "drift": ["drifting/0"],
        "hashes-may-differ": sorted(f"{name}/0" for name in outcome.expected if name != "gone"),
    }
    assert (diagnosis["verdict"], diagnosis["exit_code"]) == ("problems", 1)
    sources = {source["replica"]: source for source in diagnosis["sources"]}
    idle = outcome.engines["idle"].publisher.last_sequence
    assert (sources["idle"]["table_seq"], sources["idle"]["position_seq"]) == (idle, idle)
    assert (sources["lost"]["lost_batches"], sources["filled"]["lost_batches"]) == (DROPPED["lost"], 0)


def test_a_plain_recount_of_the_log_comes_to_the_same_rows(outcome: Outcome) -> None:
    code, comparison = said_by(outcome.pipeline, "verify")
    assert code == 0, comparison


def test_the_doctor_misses_a_worker_that_was_killed(outcome: Outcome) -> None:
    outcome.pipeline.processes[0].kill()
    deadline = time.monotonic() + 60
    # The group forgets it when its session is over.
    while "no-worker" not in (
        found := {finding["code"] for finding in said_by(outcome.pipeline, "doctor")[1]["findings"]}
    ):
        assert time.monotonic() < deadline, found
        time.sleep(1)
