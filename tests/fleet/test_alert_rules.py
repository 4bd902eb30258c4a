"""Prometheus' own tool takes the rules; each fires where something is wrong, and is quiet elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.command_lines import FENCE

RULES = ROOT / "deploy" / "helm" / "kvlens" / "rules.json"
FILES = [RULES, ROOT / "deploy" / "prometheus" / "rules.yaml"]
"""The chart's, and those of a plain Prometheus."""
VARIABLE = "KVLENS_PROMTOOL"
MISSING = f"no promtool: install Debian's package prometheus, or name the program in {VARIABLE}"
ALERTS = [rule["alert"] for group in json.loads(RULES.read_bytes())["groups"] for rule in group["rules"]]
Series = Mapping[str, str]
"""Name with labels -> values, one a minute, as promtool writes them."""
GROWS, STANDS = "0+5x70", "5x70"
LONG_AGO, NOW = "0x70", "0+60x70"
ONE, NONE = "1x70", "0x70"
NEVER = " ".join(["Inf"] * 71)


def grows(counter: str) -> tuple[Series, Series]:
    return {f"kvlens_{counter}": GROWS}, {f"kvlens_{counter}": STANDS}


def prefill(caused: str, cause: str) -> Series:
    name = "kvlens_fleet_filled_tokens_per_second"
    return {f'{name}{{model="m",cause="{cause}"}}': caused, f'{name}{{model="m",cause="cold"}}': "2x70"}


def owned(*partitions: int) -> Series:
    workers = {
        f'agent="replica",instance="{name}"': count for name, count in zip("ab", partitions, strict=False)
    }
    return {
        **{f"kvlens_worker_partitions{{{labels}}}": f"{count}x70" for labels, count in workers.items()},
        **{f"kvlens_worker_topic_partitions{{{labels}}}": "32x70" for labels in workers},
    }


CASES: dict[str, tuple[Series, Series]] = {
    "KvlensStreamDegraded": grows('connector_lost_batches_total{replica="a"}'),
    "KvlensStreamUnreachable": (
        {"kvlens_connector_source_connected": "2x70", "kvlens_connector_sources": "3x70"},
        {"kvlens_connector_source_connected": "3x70", "kvlens_connector_sources": "3x70"},
    ),
    "KvlensNoEvents": (
        {"kvlens_connector_engine_events_total": STANDS},
        {"kvlens_connector_engine_events_total": GROWS},
    ),
    "KvlensTablesStale": (
        {"kvlens_fleet_newest_window_timestamp_seconds": LONG_AGO},
        {"kvlens_fleet_newest_window_timestamp_seconds": NOW},
    ),
    "KvlensStreamDrift": (
        {'kvlens_worker_troubled_sources{trouble="drifting"}': ONE},
        {'kvlens_worker_troubled_sources{trouble="partial"}': ONE},
    ),
    "KvlensCapacityLoss": (prefill("1x70", "evicted"), prefill("0.1x70", "evicted")),
    "KvlensRoutingLoss": (prefill("1x70", "peer"), prefill("0.1x70", "peer")),
    "KvlensSourceSilent": (
        {"kvlens_connector_last_batch_timestamp_seconds": LONG_AGO},
        {"kvlens_connector_last_batch_timestamp_seconds": NOW},
    ),
    "KvlensMetricsPageUnreadable": grows("connector_scrape_failures_total"),
    "KvlensFiguresRefused": grows("connector_refused_figures_total"),
    "KvlensKubernetesUnanswered": grows("connector_kubernetes_failures_total"),
    "KvlensPodsUnlisted": (
        {"kvlens_connector_pod_lists_total": STANDS},
        {"kvlens_connector_pod_lists_total": GROWS},
    ),
    "KvlensPodsRefused": grows("connector_refused_pods_total"),
    "KvlensKafkaBehind": (
        {"kvlens_connector_unacknowledged_bytes": "17000000x70"},
        {"kvlens_connector_unacknowledged_bytes": "1000x70"},
    ),
    "KvlensKafkaStands": (
        {"kvlens_connector_unacknowledged_bytes": "1000x70", "kvlens_connector_records_total": STANDS},
        {"kvlens_connector_unacknowledged_bytes": "1000x70", "kvlens_connector_records_total": GROWS},
    ),
    "KvlensRecordsAbandoned": grows("connector_abandoned_records_total"),
    "KvlensSourcesContested": grows("connector_contested_sources_total"),
    "KvlensPositionsUnwritten": grows("connector_position_write_failures_total"),
    "KvlensEndpointsRefused": grows("connector_refused_endpoints_total"),
    "KvlensWorkersBehind": (
        {'kvlens_worker_lag_records{partition="3"}': "1001x70"},
        {'kvlens_worker_lag_records{partition="3"}': "999x70"},
    ),
    "KvlensCheckpointOld": (
        {"kvlens_worker_checkpoint_timestamp_seconds": LONG_AGO},
        {"kvlens_worker_checkpoint_timestamp_seconds": NOW},
    ),
    "KvlensWorkerHolding": ({"kvlens_worker_holding": ONE}, {"kvlens_worker_holding": NONE}),
    "KvlensStoreFailures": grows("worker_store_failures_total"),
    "KvlensRecordsLost": grows("worker_records_lost_total"),
    "KvlensRecordsSetAside": grows("worker_records_set_aside_total"),
    "KvlensEventsLeftOut": grows("worker_left_out_events_total"),
    "KvlensPartitionsWithoutOwner": (owned(16, 15), owned(16, 16)),
    "KvlensRebalances": grows("worker_rebalances_total"),
    "KvlensIndexStale": (
        {
            'kvlens_index_age_seconds{instance="starts"}': NEVER,
            'kvlens_index_age_seconds{instance="fresh"}': "0.2x70",
        },
        {'kvlens_index_age_seconds{instance="fresh"}': "0.2x70"},
    ),
}
"""Alert -> an hour at whose end it fires, and one at whose end it does not."""
MINUTES = 70
BEGAN = "_x65 7x4"
"""Of a process, or of a label, that is new, and had counted before it was read for the first time."""
EDGES: list[tuple[str, Series, bool]] = [
    ("KvlensStreamDegraded", {'kvlens_connector_lost_batches_total{replica="a"}': BEGAN}, True),
    (
        "KvlensStreamDegraded",
        {'kvlens_connector_undecodable_total{replica="a",reason="malformed"}': BEGAN},
        True,
    ),
    ("KvlensNoEvents", {}, True),
    ("KvlensPodsRefused", {'kvlens_connector_refused_pods_total{reason="no_model"}': BEGAN}, True),
    ("KvlensSourcesContested", {"kvlens_connector_contested_sources_total": BEGAN}, True),
    ("KvlensEndpointsRefused", {"kvlens_connector_refused_endpoints_total": "_x67 7x2"}, True),
    ("KvlensRecordsLost", {'kvlens_worker_records_lost_total{agent="replica"}': BEGAN}, True),
    ("KvlensRecordsSetAside", {'kvlens_worker_records_set_aside_total{reason="malformed"}': BEGAN}, True),
    ("KvlensEventsLeftOut", {'kvlens_worker_left_out_events_total{reason="blocks"}': "_x67 7x2"}, True),
    (
        "KvlensPartitionsWithoutOwner",
        {
            f'kvlens_worker_{name}{{agent="replica"}}': "32x60 stale"
            for name in ("partitions", "topic_partitions")
        },
        True,
    ),
    ("KvlensPodsUnlisted", {"kvlens_connector_pod_lists_total": BEGAN}, False),
    (
        "KvlensSourceSilent",
        {"kvlens_connector_last_batch_timestamp_seconds": "_x65 0x4"},
        False,
    ),
    ("KvlensCheckpointOld", {"kvlens_worker_checkpoint_timestamp_seconds": "_x67 0x2"}, False),
]
"""Alert, series that have just begun or ended, whether it fires."""


@pytest.fixture(scope="module")
def promtool() -> str:
    program = os.environ.get(VARIABLE) or shutil.which("promtool")
    if program is None:
        pytest.skip(f"the rules were not tried: {MISSING}")
    return program


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.name))
def test_the_tool_finds_nothing_wrong(promtool: str, file: Path) -> None:
    assert f"SUCCESS: {len(ALERTS)} rules found" in ran(promtool, "check", "rules", str(file))


def test_every_rule_has_a_case() -> None:
    assert list(CASES) == ALERTS


def test_each_fires_and_is_quiet(promtool: str, tmp_path: Path) -> None:
    tests = [
        after_an_hour(alert, series, fires=not number)
        for alert in CASES
        for number, series in enumerate(CASES[alert])
    ] + [after_an_hour(alert, series, fires=fires) for alert, series, fires in EDGES]
    file = tmp_path / "tests.json"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    ran(promtool, "test", "rules", str(file))


def after_an_hour(alert: str, series: Series, *, fires: bool) -> dict[str, object]:
    firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    return {
        "name": alert,
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": firing,
                "eval_time": f"{MINUTES}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
        ],
    }


def ran(*command: str) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


def test_the_tools_take_the_files_that_the_page_on_alerts_shows(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_bytes(FILES[1].read_bytes())
    page = (ROOT / "docs" / "alerts.md").read_text("utf-8")
    for language, block in FENCE.findall(page):
        if language == "yaml" and (name := block.splitlines()[0].removeprefix("# ")).endswith(".yml"):
            (tmp_path / name).write_text(block)
    assert "SUCCESS" in ran(promtool, "check", "config", str(tmp_path / "prometheus.yml"))
    if amtool := shutil.which("amtool"):
        assert "SUCCESS" in ran(amtool, "check-config", str(tmp_path / "alertmanager.yml"))
