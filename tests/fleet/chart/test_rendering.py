"""The chart as text: helm finds nothing wrong, renders what is kept, and refuses values that nobody reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.chart.golden import DIGEST, as_text, rendered_now
from tests.fleet.chart.helm import Helm, HelmFailed
from tests.fleet.real_parts import Programs
from tests.support.chart import CASES, CHART, GOLDEN, RENEW, case_values, digest
from tests.support.checkout import ROOT, written_version
from tests.support.command_lines import FENCE


@pytest.mark.parametrize("case", ["", *CASES])
def test_helm_finds_nothing_wrong(helm: Helm, case: str) -> None:
    said = helm("lint", "--strict", str(CHART), values=case_values(case) if case else None)
    assert "1 chart(s) linted, 0 chart(s) failed" in said


@pytest.mark.parametrize("case", CASES)
def test_what_is_rendered_is_what_is_kept(helm: Helm, programs: Programs, case: str) -> None:
    now = rendered_now(helm, programs["kubectl"], case)
    assert as_text(now) == (GOLDEN / f"{case}.json").read_text("utf-8"), RENEW
    assert DIGEST.read_text() == f"{digest()}\n", RENEW


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"workers": {"replicas": 3}}, "'workers' not allowed"),
        ({"worker": {"replica": 3}}, "'replica' not allowed"),
        ({"worker": {"replicas": 9}}, "more workers than the 8 of config.kafka.partitions"),
        ({"worker": {"autoscaling": {"enabled": True, "maxReplicas": 9}}}, "more workers than the 8"),
        ({"worker": {"replicas": 33}, "config": {"kafka": {"partitions": 32}}}, "more workers than the 32"),
        ({"config": {"kafka": {"bootstrap_server": "a:9092"}}}, "'bootstrap_server' not allowed"),
        ({"config": {"clickhouse": {"password": "x"}}}, "'password' not allowed"),
        ({"config": {"clickhouse": {"url": ""}}}, "config.clickhouse.url is empty"),
        ({"config": {"discovery": {"kubernetes": [{"prest": "llm-d"}]}}}, "'prest' not allowed"),
    ],
)
def test_values_that_nobody_reads_are_refused(helm: Helm, values: dict[str, Any], problem: str) -> None:
    with pytest.raises(HelmFailed, match=problem):
        helm("template", "kvlens", str(CHART), values=values)


@pytest.mark.parametrize("page", ["README.md", "docs/kubernetes.md"])
def test_the_values_of_the_documentation_are_taken(helm: Helm, tmp_path: Path, page: str) -> None:
    blocks = FENCE.findall((ROOT / page).read_text("utf-8"))
    (values,) = [text for language, text in blocks if language == "yaml" and text.startswith("image:")]
    (tmp_path / "values.yaml").write_text(values, "utf-8")
    rendered = helm("template", "kvlens", str(CHART), "--values", str(tmp_path / "values.yaml"))
    assert f"image: registry.example/kvlens:{written_version()}\n" in rendered
    assert "    [kafka]\n    bootstrap_servers = " in rendered


def test_an_account_of_all_namespaces_needs_a_cluster_role(helm: Helm) -> None:
    everywhere = {"config": {"discovery": {"kubernetes": [{"preset": "llm-d", "namespaces": ["*"]}]}}}
    text = helm("template", "kvlens", str(CHART), "--namespace", "here", values=everywhere)
    assert "kind: ClusterRole\n" in text
    assert "kind: Role\n" not in text
    none = helm("template", "kvlens", str(CHART), values={})
    assert "kind: Role\n" not in none
    assert "automountServiceAccountToken: true" not in none


def test_the_number_of_workers_can_be_left_alone(helm: Helm) -> None:
    options = ("--show-only", "templates/worker-deployment.yaml")
    assert "\n  replicas: 2\n" in helm("template", "kvlens", str(CHART), *options, values={})
    left = helm("template", "kvlens", str(CHART), *options, values={"worker": {"replicas": None}})
    assert "replicas:" not in left


def test_more_partitions_allow_more_workers(helm: Helm) -> None:
    values = {"worker": {"replicas": 32}, "config": {"kafka": {"partitions": 32}}}
    options = ("--show-only", "templates/worker-deployment.yaml")
    assert "\n  replicas: 32\n" in helm("template", "kvlens", str(CHART), *options, values=values)


def test_openshift_chooses_the_user(helm: Helm) -> None:
    values = {"podSecurityContext": dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"))}
    text = helm("template", "kvlens", str(CHART), values=values)
    assert "runAsNonRoot: true" in text
    assert "runAsUser" not in text
    assert "fsGroup" not in text


def test_names_of_digits_stay_texts(helm: Helm) -> None:
    values = {
        "dashboards": {"enabled": True, "folder": "Team: caches"},
        "podMonitor": {"enabled": True},
        "secrets": {"files": {"page": {"token_file": {"secret": "1", "key": "2"}}}},
        "config": {"discovery": {"kubernetes": [{"preset": "llm-d", "namespaces": ["3"]}]}},
    }
    text = helm("template", "123", str(CHART), "--namespace", "2026", values=values)
    assert re.findall(r"(?:name|namespace|instance|key): \d+(?:$|[,}])", text, re.M) == []
    assert text.count('grafana_folder: "Team: caches"\n') == text.count("grafana_folder: ")


def test_without_clickhouse_topics_are_made_and_workers_have_the_figures(helm: Helm) -> None:
    values = {
        "config": {"clickhouse": {"url": ""}},
        "serve": {"enabled": False},
        "podMonitor": {"enabled": True},
    }
    text = helm("template", "kvlens", str(CHART), values=values)
    assert "      containers:\n        - name: topics\n" in text
    assert "initContainers:" not in text
    assert "args: [migrate]" not in text
    assert text.count("path: /fleet/metrics\n") == 1
