"""The Helm chart as helm rendered it: settings, rights, what pods may do and take."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from pipeline.generated.topics_file import load_topics
from pipeline.settings.loading import load
from schemas.settings import Settings
from tests.support.chart import (
    CASES,
    CHART,
    GOLDEN,
    RENEW,
    case_values,
    containers,
    digest,
    of_kind,
    pod_templates,
    rendered,
)
from tests.support.checkout import ROOT, written_version
from tests.support.pod_security import options

JSON = dict[str, Any]
SECRETS = "/etc/kvlens/secrets"


def settings_of(case: str, component: str) -> Settings:
    """The settings of a process in a pod, as the kubelet gives them: its file, and its environment."""
    objects = rendered(case)
    template = pod_templates(objects)[component]
    spec = template["spec"]
    (name,) = [each["configMap"]["name"] for each in spec["volumes"] if each["name"] == "config"]
    (config_map,) = [each for each in of_kind(objects, "ConfigMap") if each["metadata"]["name"] == name]
    environment = {each["name"]: each.get("value", "2") for each in spec["containers"][0]["env"]}
    environment = {
        name: value.replace("$(ORDINAL)", environment.get("ORDINAL", ""))
        for name, value in environment.items()
        if name != "ORDINAL"
    }
    mounted = {
        f"{SECRETS}/{item['path']}": f"{source['secret']['name']}:{item['key']}, long enough"
        for volume in spec["volumes"]
        if volume["name"] == "secrets"
        for source in volume["projected"]["sources"]
        for item in source["secret"]["items"]
    }
    return load(config_map["data"]["kvlens.toml"], name, environment, mounted.__getitem__).settings


def test_what_is_here_was_rendered_from_the_chart_as_it_is() -> None:
    assert (GOLDEN / "chart.sha256").read_text() == f"{digest()}\n", RENEW


def test_the_chart_runs_this_version() -> None:
    version = written_version()
    chart = (CHART / "Chart.yaml").read_text("utf-8")
    assert f"\nappVersion: {version}\n" in chart
    assert f"\nversion: {version.replace('.dev', '-dev.')}\n" in chart
    assert f"registry.example/kvlens:{version} " in (ROOT / "README.md").read_text("utf-8")
    for template in pod_templates(rendered("small")).values():
        assert {each["image"] for each in containers(template)} == {f"kvlens:{version}"}


def test_connectors_have_their_shard_and_the_settings_of_the_values() -> None:
    given = case_values("fleet")["config"]
    settings = settings_of("fleet", "connector")
    assert settings.connector.shard == "2/3"
    assert (settings.connector.metrics_host, settings.connector.metrics_port) == ("0.0.0.0", 9101)
    assert settings.connector.hand_over_bytes == given["connector"]["hand_over_bytes"]
    assert settings.kafka.sasl_password == "kvlens-kafka-user:password, long enough"
    assert settings.kafka.ssl_cafile == f"{SECRETS}/kafka/ssl_cafile"
    assert settings.clickhouse.password == ""
    assert [entry.namespaces for entry in settings.discovery.kubernetes] == [
        ("inference", "batch"),
        ("batch",),
    ]
    assert settings.discovery.kubernetes[1].selector == given["discovery"]["kubernetes"][1]["selector"]
    assert settings.discovery.bind[0].endpoint == "tcp://*:5600"
    assert settings.models[0].currency == given["models"][0]["currency"]
    assert settings.replicas[0].dp_ranks == 2


def test_workers_and_page_have_their_secrets_and_addresses() -> None:
    worker, page = settings_of("fleet", "worker"), settings_of("fleet", "serve")
    assert (worker.worker.stop_seconds, worker.worker.rollup_seconds) == (90, 20)
    assert (worker.worker.metrics_host, worker.worker.metrics_port) == ("0.0.0.0", 9102)
    assert worker.clickhouse.password == "kvlens-clickhouse:password, long enough"
    assert worker.page.token == ""
    assert (page.page.host, page.page.port) == ("0.0.0.0", 8080)
    assert page.page.token == "kvlens-page:token, long enough"


def test_a_pod_has_the_time_that_its_stop_takes() -> None:
    given = {name: template["spec"] for name, template in pod_templates(rendered("fleet")).items()}
    field = "terminationGracePeriodSeconds"
    assert {name: spec[field] for name, spec in given.items() if field in spec} == {
        "connector": 30,
        "worker": 100,
    }
    assert all(field not in each["spec"] for each in pod_templates(rendered("small")).values())


def test_indexes_have_a_token_and_answer_whom_the_values_name() -> None:
    index = settings_of("fleet", "index")
    assert (index.index.host, index.index.port, index.index.share) == ("0.0.0.0", 8095, "0/1")
    assert index.index.token == "kvlens-index:token, long enough"
    assert index.kafka.sasl_password == "kvlens-kafka-user:password, long enough"
    assert (index.clickhouse.password, index.page.token) == ("", "")
    objects = rendered("fleet")
    (service,) = of_kind(objects, "Service", "-index")
    (deployment,) = of_kind(objects, "Deployment", "-index")
    (budget,) = of_kind(objects, "PodDisruptionBudget", "-index")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for selector in (service["spec"]["selector"], budget["spec"]["selector"]["matchLabels"]):
        assert selector.items() <= labels.items()
    (container,) = containers(deployment["spec"]["template"])
    assert container["ports"] == [{"name": "index", "containerPort": 8095}]
    assert service["spec"]["ports"][0]["targetPort"] == "index"
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "index"}
    (policy,) = of_kind(objects, "NetworkPolicy")
    allowed = [rule for rule in policy["spec"]["ingress"] if rule["ports"] == [{"port": "index"}]]
    given = case_values("fleet")["networkPolicy"]
    assert [rule["from"] for rule in allowed] == [given["indexFrom"] + given["metricsFrom"]]


def test_the_hook_has_the_settings_of_the_release_before_it_is_there() -> None:
    objects = rendered("fleet")
    hooks = [
        (
            each["kind"],
            each["metadata"]["name"],
            each["metadata"]["annotations"].get("helm.sh/hook-weight", "0"),
        )
        for each in objects
        if "helm.sh/hook" in each["metadata"].get("annotations", {})
    ]
    assert sorted(hooks) == [("ConfigMap", "kvlens-prepare", "-1"), ("Job", "kvlens-prepare", "0")]
    (job,) = of_kind(objects, "Job")
    assert [each["args"] for each in containers(job["spec"]["template"])] == [
        ["topics", "apply"],
        ["migrate"],
    ]
    prepared, running = settings_of("fleet", "prepare"), settings_of("fleet", "worker")
    assert (prepared.kafka, prepared.clickhouse) == (running.kafka, running.clickhouse)


@pytest.mark.parametrize("case", CASES)
def test_every_pod_is_restricted(case: str) -> None:
    templates = pod_templates(rendered(case))
    asked = ["index"] if case == "fleet" else []
    assert sorted(templates) == ["connector", *asked, "prepare", "serve", "worker"]
    for template in templates.values():
        spec = template["spec"]
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True
        assert (security["runAsUser"], security["runAsGroup"]) == (65532, 65532)
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert {"hostNetwork", "hostPID", "hostIPC"}.isdisjoint(spec)
        assert spec["enableServiceLinks"] is False
        assert {"name": "tmp", "emptyDir": {}} in spec["volumes"]
        for container in containers(template):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            }
            writable = [each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")]
            assert writable == ["/tmp"]


@pytest.mark.parametrize("case", CASES)
def test_the_account_may_list_and_watch_pods_and_only_connectors_have_it(case: str) -> None:
    objects = rendered(case)
    roles = of_kind(objects, "Role")
    for role in roles:
        assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    namespaces = {"small": ["kvlens"], "fleet": ["batch", "inference"]}[case]
    assert [role["metadata"]["namespace"] for role in roles] == namespaces
    for binding in of_kind(objects, "RoleBinding"):
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "kvlens-connector", "namespace": "kvlens"}
        ]
    assert not of_kind(objects, "ClusterRole")
    with_token = {
        name
        for name, template in pod_templates(objects).items()
        if template["spec"]["automountServiceAccountToken"]
    }
    assert with_token == {"connector"}


def test_requests_and_limits_are_those_of_the_page_on_sizing() -> None:
    text = (ROOT / "docs/sizing.md").read_text("utf-8").split("## Requests and limits\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| (\S+) \| (\S+) \| (\S+) \|", text, re.M)
    sized = {
        part: {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}}
        for part, cpu, memory, limit in rows
        if part != "part"
    }
    for case in CASES:
        for part, template in pod_templates(rendered(case)).items():
            assert [each["resources"] for each in containers(template)] == [sized[part]] * len(
                containers(template)
            )


def test_no_more_workers_than_partitions() -> None:
    partitions = load_topics()["events"].partitions
    (scaler,) = of_kind(rendered("fleet"), "HorizontalPodAutoscaler")
    assert scaler["spec"]["maxReplicas"] == partitions
    (workers,) = of_kind(rendered("fleet"), "Deployment", "-worker")
    assert "replicas" not in workers["spec"]
    most = 1024
    for values in ({"replicas": most + 1}, {"autoscaling": {"maxReplicas": most + 1}}):
        assert any("maximum" in each for each in problems({"worker": values}))


def test_boards_and_rules_are_the_generated_ones() -> None:
    objects = rendered("fleet")
    boards = [each for each in of_kind(objects, "ConfigMap") if each["metadata"]["namespace"] == "monitoring"]
    files = [file for board in boards for file in board["data"].values()]
    assert files == [
        {"file": f"dashboards/{path.name}"} for path in sorted((ROOT / "deploy/grafana/dashboards").iterdir())
    ]
    assert all(board["metadata"]["labels"]["grafana_dashboard"] == "1" for board in boards)
    assert of_kind(objects, "PrometheusRule")[0]["spec"] == {
        "file": "rules.json",
        "runbook_url": case_values("fleet")["prometheusRule"]["runbookUrl"],
    }


def problems(values: JSON) -> list[str]:
    """What the schema says of some values, whose other keys are left out: the kinds of faults, with paths."""
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    found = jsonschema.Draft202012Validator(schema).iter_errors(values)
    return [
        f"{each.json_path}: {each.validator}: {each.message}"
        for each in found
        if each.validator != "required"
    ]


def test_the_schema_takes_the_values_of_the_chart_itself() -> None:
    """With every key that it wants: helm checks the whole, once a team's values are laid over it."""
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    jsonschema.validate(YAML(typ="safe").load(CHART / "values.yaml"), schema)


@pytest.mark.parametrize("case", CASES)
def test_the_schema_takes_the_values_that_were_rendered(case: str) -> None:
    assert problems(case_values(case)) == []


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"conector": {}}, r"\$: additionalProperties: .*'conector'"),
        ({"connector": {"shard": 2}}, r"\$\.connector: additionalProperties: .*'shard'"),
        ({"config": {"kafka": {"bootstrap": "a:1"}}}, r"\$\.config\.kafka: additionalProperties"),
        ({"config": {"worker": {"checkpoint_seconds": 0}}}, r"\$\.config\.worker\.checkpoint_seconds: excl"),
        ({"config": {"kafka": {"sasl_password": "x"}}}, r"\$\.config\.kafka: additionalProperties"),
        ({"config": {"connector": {"shard": "0/2"}}}, r"\$\.config\.connector: additionalProperties"),
        ({"secrets": {"files": {"kafka": {"password": {}}}}}, r"\$\.secrets\.files\.kafka: additionalProp"),
        ({"config": {"discovery": {"kubernetes": [{"preset": "llmd"}]}}}, r"kubernetes\[0\]\.preset: enum"),
    ],
)
def test_the_schema_refuses_what_nobody_would_read(values: JSON, problem: str) -> None:
    (said,) = problems(values)
    assert re.search(problem, said), said


@pytest.mark.parametrize("case", CASES)
def test_the_image_is_tried_with_what_pods_may_do(case: str) -> None:
    templates = pod_templates(rendered(case))
    tried = {name: options(template) for name, template in templates.items() if name != "prepare"}
    assert set(tried) >= {"connector", "worker", "serve"}
    for each in tried.values():
        assert sorted(each) == [
            "--cap-drop=ALL",
            "--group-add=65532",
            "--read-only",
            "--read-only-tmpfs=false",
            "--security-opt=no-new-privileges",
            "--tmpfs=/tmp:rw,size=64m,mode=1777",
            "--user=65532:65532",
        ]
    context = templates["worker"]["spec"]["containers"][0]["securityContext"]
    for field, value in (("privileged", True), ("readOnlyRootFilesystem", False)):
        context[field] = value
        with pytest.raises((KeyError, AssertionError)):
            options(templates["worker"])
        del context[field]
