"""The Helm chart, and what it renders for some values: tests/data/chart has both, written by helm."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.support.checkout import ROOT

CHART = ROOT / "deploy/helm/kvlens"
GOLDEN = ROOT / "tests/data/chart"
CASES = ("small", "fleet")
NAMESPACE = "kvlens"
RENEW = "with helm: python -m tests.fleet.chart.golden"
JSON = dict[str, Any]


def case_values(case: str) -> JSON:
    """Return what a user gives, beside the values that the chart has."""
    return dict(json.loads((GOLDEN / f"{case}.values.json").read_text("utf-8")))


def rendered(case: str) -> list[JSON]:
    """Return the objects; what is a whole generated file is left out of them (`without_generated`)."""
    return list(json.loads((GOLDEN / f"{case}.json").read_text("utf-8"))["items"])


def of_kind(objects: list[JSON], kind: str, suffix: str = "") -> list[JSON]:
    return [each for each in objects if each["kind"] == kind and each["metadata"]["name"].endswith(suffix)]


def pod_templates(objects: list[JSON]) -> dict[str, JSON]:
    """Return {component: template} of all workloads."""
    templates = [each["spec"]["template"] for each in objects if "template" in each.get("spec", {})]
    return {each["metadata"]["labels"]["app.kubernetes.io/component"]: each for each in templates}


def containers(template: JSON) -> list[JSON]:
    spec = template["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def without_generated(objects: list[JSON]) -> list[JSON]:
    """Return the objects with names of files for boards and rules, after a comparison of the contents."""
    for each in objects:
        if each["kind"] == "PrometheusRule":
            rules = [rule for group in each["spec"]["groups"] for rule in group["rules"]]
            (page,) = {_page(rule["annotations"]) for rule in rules}
            assert each["spec"] == json.loads((CHART / "rules.json").read_bytes())
            each["spec"] = {"file": "rules.json", "runbook_url": page}
        for name, content in each.get("data", {}).items():
            path = f"dashboards/{name.removeprefix('kvlens-')}"
            if name.endswith(".json"):
                assert content == (CHART / path).read_text("utf-8")
                each["data"][name] = {"file": path}
    return objects


def _page(annotations: dict[str, str]) -> str:
    """Take an alert's link from its annotations; return it without the anchor of the alert's section."""
    page, _, anchor = annotations.pop("runbook_url").partition("#")
    assert annotations["runbook"] == f"docs/alerts.md#{anchor}"
    return page


def digest() -> str:
    """Return a digest of all that decides what is rendered, without generated files."""
    paths = [CHART / "Chart.yaml", CHART / "values.yaml", *sorted((CHART / "templates").iterdir())]
    paths += [GOLDEN / f"{case}.values.json" for case in CASES]
    return sha256(b"".join(_line(path) for path in paths)).hexdigest()


def _line(path: Path) -> bytes:
    return f"{path.name} {sha256(path.read_bytes()).hexdigest()}\n".encode()
