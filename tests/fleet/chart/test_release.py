"""The chart in a real cluster, as far as that goes without a kubelet: install, upgrade, rollback, rights."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.chart.custom_resources import CUSTOM_RESOURCES
from tests.fleet.chart.helm import Helm, HelmFailed
from tests.fleet.chart.kubelet import Kubelet
from tests.fleet.chart.release import Release
from tests.fleet.cluster import Cluster
from tests.fleet.control_plane import ControlPlane
from tests.fleet.real_parts import Programs
from tests.support.chart import CASES, CHART, case_values
from tests.support.checkout import ROOT
from tests.support.command_lines import FENCE

JSON = dict[str, Any]
ACCOUNT = "system:serviceaccount:{}:kvlens-connector"
_numbers = itertools.count()


def values_for(release: Release) -> JSON:
    """Settings and Secrets as an operator has them; engines in two namespaces."""
    return {
        "config": {
            "kafka": {"bootstrap_servers": "kafka:9093", "security_protocol": "SASL_SSL"},
            "clickhouse": {"url": "http://clickhouse:8123"},
            "discovery": {
                "kubernetes": [
                    {"preset": "llm-d", "namespaces": [release.namespace, f"{release.namespace}-2"]}
                ]
            },
        },
        "secrets": {"files": {"kafka": {"sasl_password_file": {"secret": "kafka-user"}}}},
        "connector": {"shards": 2},
        "prepare": {"backoffLimit": 0},
    }


@pytest.fixture
def release(plane: ControlPlane, programs: Programs, kubelet: Kubelet, tmp_path: Path) -> Iterator[Release]:
    """Two namespaces that enforce `restricted`, with the Secrets that the values name."""
    namespace = f"release-{next(_numbers)}"
    release = Release(plane, programs, tmp_path, namespace)
    for name in (namespace, f"{namespace}-2", f"{namespace}-3"):
        release.make_namespace(name)
    release.secret("kafka-user", password="first")
    release.secret("kvlens-page", token="sixteen characters")
    yield release
    release.helm("uninstall", "kvlens", "--ignore-not-found")


def test_strict_validation_by_the_server_finds_nothing(release: Release, helm: Helm) -> None:
    release.apply(*CUSTOM_RESOURCES)
    release.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    release.make_namespace("monitoring")
    for namespace in ("inference", "batch"):
        release.make_namespace(namespace)
    for case in CASES:
        text = helm(
            "template", "kvlens", str(CHART), "--namespace", release.namespace, values=case_values(case)
        )
        said = release.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", given=text)
        assert said.count("created (server dry run)") == text.count("\nkind: "), said
        assert "Warning" not in said


def test_strict_validation_would_find_a_misspelt_field(release: Release, helm: Helm) -> None:
    text = helm("template", "kvlens", str(CHART), "--namespace", release.namespace)
    wrong = text.replace("livenessProbe:", "livenesProbe:", 1)
    with pytest.raises(AssertionError, match="livenesProbe"):
        release.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", given=wrong)


def test_install_upgrade_rollback(release: Release) -> None:
    first = values_for(release)
    release.install(first)
    assert sorted(release.pods("connector")) == ["kvlens-connector-0", "kvlens-connector-1"]
    indices = [
        pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"]
        for pod in release.found("pods")
        if pod["metadata"]["name"].startswith("kvlens-connector-")
    ]
    assert indices == ["0", "1"]
    assert len(release.pods("worker")) == 2
    assert len(release.pods("serve")) == 1
    assert release.found("jobs") == [], "the hook goes when it succeeded"
    before = release.pods("connector") | release.pods("worker")

    second = copy.deepcopy(first)
    second["config"]["worker"] = {"checkpoint_seconds": 0.5}
    release.upgrade(second)
    (config,) = release.found("configmaps", "kvlens")
    assert "checkpoint_seconds = 0.5" in config["data"]["kvlens.toml"]
    after = release.pods("connector") | release.pods("worker")
    assert set(before.values()).isdisjoint(after.values()), "a change of the settings restarts all pods"

    release.helm("rollback", "kvlens", "1", "--wait", "--timeout", "180s")
    (config,) = release.found("configmaps", "kvlens")
    assert "checkpoint_seconds" not in config["data"]["kvlens.toml"]
    assert set(after.values()).isdisjoint(release.pods("worker").values())
    assert release.history() == [(1, "superseded"), (2, "superseded"), (3, "deployed")]


def test_pods_restart_when_their_secret_changes_and_not_for_replicas(release: Release) -> None:
    values = values_for(release)
    release.install(values)
    before = {part: release.pods(part) for part in ("connector", "worker", "serve")}

    values["config"]["replicas"] = [{"id": "a", "model": "m", "endpoint": "tcp://10.0.0.1:5557"}]
    release.upgrade(values)
    assert {part: release.pods(part) for part in before} == before, "connectors read them again by themselves"

    release.secret("kvlens-page", token="other sixteen characters")
    release.upgrade(values)
    assert release.pods("serve") != before["serve"]
    assert release.pods("connector") | release.pods("worker") == before["connector"] | before["worker"]

    release.secret("of-the-worker", key="a")
    values["worker"] = {
        "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "of-the-worker", "key": "key"}}}]
    }
    release.upgrade(values)
    workers = release.pods("worker")
    release.secret("of-the-worker", key="b")
    release.upgrade(values)
    assert set(release.pods("worker").values()).isdisjoint(workers.values())
    assert release.pods("connector") == before["connector"]

    release.secret("kafka-user", password="second")
    release.upgrade(values)
    assert set(release.pods("connector").values()).isdisjoint(before["connector"].values())
    for workload in ("statefulsets/kvlens-connector", "deployments/kvlens-worker"):
        assert "second" not in json.dumps(release.template(workload))


def test_a_failed_hook_leaves_the_old_release(release: Release, kubelet: Kubelet) -> None:
    values = values_for(release)
    release.install(values)
    before = release.pods("connector") | release.pods("worker")
    changed = copy.deepcopy(values)
    changed["config"]["kafka"]["bootstrap_servers"] = "other:9093"
    kubelet.failing.add(release.namespace)
    with pytest.raises(HelmFailed, match="pre-upgrade hooks failed"):
        release.upgrade(changed)
    assert release.pods("connector") | release.pods("worker") == before
    (config,) = release.found("configmaps", "kvlens")
    assert 'bootstrap_servers = "kafka:9093"' in config["data"]["kvlens.toml"]
    assert release.history() == [(1, "deployed"), (2, "failed")]
    (job,) = release.found("jobs")
    assert job["metadata"]["name"] == "kvlens-prepare", "it stays for its logs"

    kubelet.failing.discard(release.namespace)
    release.upgrade(changed)
    assert release.history()[-1] == (3, "deployed")
    assert set(before.values()).isdisjoint(release.pods("connector").values())


def test_the_number_of_shards_changes_through_none(release: Release) -> None:
    values = values_for(release)
    release.install(values)
    values["connector"]["shards"] = 3
    with pytest.raises(HelmFailed, match=r"2 run, so 3 need a stop between"):
        release.upgrade(values)
    values["connector"]["shards"] = 0
    release.upgrade(values)
    assert release.pods("connector") == {}
    values["connector"]["shards"] = 3
    release.upgrade(values)
    assert len(release.pods("connector")) == 3


def test_what_an_autoscaler_chose_stays(release: Release) -> None:
    values = values_for(release)
    values["worker"] = {"replicas": 3}
    release.install(values)
    values["worker"] = {"autoscaling": {"enabled": True}}
    release.upgrade(values)
    (scaler,) = release.found("horizontalpodautoscalers")
    assert scaler["spec"]["maxReplicas"] == 8
    release.kubectl("scale", "--namespace", release.namespace, "deployment/kvlens-worker", "--replicas=5")
    values["config"]["worker"] = {"checkpoint_seconds": 2}
    release.upgrade(values)
    assert len(release.pods("worker")) == 5


async def test_the_account_may_list_and_watch_pods_and_nothing_else(
    release: Release, cluster: Cluster
) -> None:
    release.install(values_for(release))
    here = release.namespace
    token = release.kubectl("create", "token", "kvlens-connector", "--namespace", here).strip()
    for namespace in (here, f"{here}-2"):
        assert await cluster.allowed(token, f"/api/v1/namespaces/{namespace}/pods") == 200
        watched = f"/api/v1/namespaces/{namespace}/pods?watch=1&timeoutSeconds=1"
        assert await cluster.allowed(token, watched) == 200
    (pod, *_) = release.pods("worker")
    refused = (
        ("GET", f"/api/v1/namespaces/{here}-3/pods"),
        ("GET", "/api/v1/pods"),
        ("GET", f"/api/v1/namespaces/{here}/secrets"),
        ("GET", f"/api/v1/namespaces/{here}/secrets/kafka-user"),
        ("GET", f"/api/v1/namespaces/{here}/configmaps"),
        ("GET", f"/api/v1/namespaces/{here}/pods/{pod}"),
        ("GET", f"/api/v1/namespaces/{here}/pods/{pod}/log"),
        ("POST", f"/api/v1/namespaces/{here}/pods"),
        ("PATCH", f"/api/v1/namespaces/{here}/pods/{pod}"),
        ("DELETE", f"/api/v1/namespaces/{here}/pods/{pod}"),
        ("POST", f"/api/v1/namespaces/{here}/pods/{pod}/eviction"),
    )
    assert {await cluster.allowed(token, path, method) for method, path in refused} == {403}
    rights = release.kubectl("auth", "can-i", "--list", "--namespace", here, f"--as={ACCOUNT.format(here)}")
    (pods,) = [line.split() for line in rights.splitlines() if line.startswith("pods ")]
    assert pods[-1] == "watch]"
    assert pods[-2] == "[list"


def test_a_namespace_that_enforces_restricted_refuses_other_pods(release: Release) -> None:
    """So the tests above show something."""
    spec = {"containers": [{"name": "a", "image": "a"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    with pytest.raises(AssertionError, match="violates PodSecurity"):
        release.apply(pod, options=("--namespace", release.namespace))


def test_the_commands_of_the_readme_install_it(release: Release) -> None:
    readme = (ROOT / "README.md").read_text("utf-8").split("## On Kubernetes\n")[1].split("\n## ")[0]
    (values,) = [block for language, block in FENCE.findall(readme) if language == "yaml"]
    (commands,) = [block for language, block in FENCE.findall(readme) if language == "sh"]
    build, *lines, forward = commands.splitlines()
    assert build.startswith("docker build ")
    assert forward.startswith("kubectl -n kvlens port-forward svc/kvlens ")
    release.make_namespace("inference")
    release.paste("\n".join(lines), {"values.yaml": values})
    kvlens = release.elsewhere("kvlens")
    assert kvlens.history() == [(1, "deployed")]
    (service,) = kvlens.found("services", "kvlens")
    assert f"{service['spec']['ports'][0]['port']}" == forward.rpartition(":")[2]
    assert kvlens.found("roles") == []
    assert [each["metadata"]["name"] for each in release.elsewhere("inference").found("roles")] == [
        "kvlens-kvlens-connector"
    ]
    kvlens.helm("uninstall", "kvlens")
