"""All generated files: what they should hold, and how a checkout differs from that."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.grafana.files import DASHBOARDS, files
from pipeline.dashboards.prometheus.process_alerts import PROCESS_ALERTS
from pipeline.dashboards.prometheus.rules import compiled, rules_file
from pipeline.generated.asyncapi import asyncapi_document
from pipeline.generated.chart.schema import values_schema
from pipeline.generated.comments import PATH as COMMENTS
from pipeline.generated.comments import comments_file
from pipeline.generated.examples.files import CURRENT_DIRECTORY, example_files
from pipeline.generated.json_schema import record_schema
from pipeline.generated.openapi import openapi_document
from pipeline.generated.pages.acls import acls_page
from pipeline.generated.pages.changing import changing_page
from pipeline.generated.pages.dashboards import dashboards_page
from pipeline.generated.pages.grants import grants_page
from pipeline.generated.pages.metrics import metrics_page
from pipeline.generated.pages.settings import settings_page
from pipeline.generated.pages.tables import tables_page
from pipeline.generated.pages.topics import topics_page
from pipeline.generated.reader import DIRECTORY as READER_DIRECTORY
from pipeline.generated.reader import reader_files
from pipeline.generated.records import RECORDS, as_json
from pipeline.generated.topics_file import load_topics

SCHEMAS_DIRECTORY = "schemas/generated"
GRAFANA_DIRECTORY = "deploy/grafana"
CHART_DIRECTORY = "deploy/helm/kvlens"
PROMETHEUS_RULES = "deploy/prometheus/rules.yaml"
RUNBOOK = Path(__file__).parents[2] / "docs/alerts.md"
DIFF_LINES = 6


@dataclass(frozen=True)
class Difference:
    """A generated file that is missing, differs, or should not be there."""

    path: str
    summary: str
    """One line, followed by the first changed lines of a text."""


def render() -> dict[str, bytes]:
    """Return {path relative to the checkout: content} of every generated file."""
    schemas = {
        f"{SCHEMAS_DIRECTORY}/{record.__name__}.schema.json": record_schema(record) for record in RECORDS
    }
    grafana = files(BOARDS, ALERTS, RUNBOOK.read_text(encoding="utf-8"))
    rules = compiled(ALERTS, PROCESS_ALERTS)
    return {
        **{path: as_json(schema) for path, schema in schemas.items()},
        f"{SCHEMAS_DIRECTORY}/asyncapi.json": as_json(asyncapi_document()),
        f"{SCHEMAS_DIRECTORY}/index.openapi.json": as_json(openapi_document()),
        **example_files(),
        **reader_files(),
        COMMENTS: comments_file(),
        **{f"{GRAFANA_DIRECTORY}/{path}": content for path, content in grafana.items()},
        f"{CHART_DIRECTORY}/rules.json": as_json(rules),
        PROMETHEUS_RULES: rules_file(rules),
        f"{CHART_DIRECTORY}/values.schema.json": as_json(values_schema()),
        "docs/acls.md": acls_page(),
        "docs/grants.md": grants_page(),
        "docs/changing.md": changing_page(),
        "docs/configuration.md": settings_page(),
        "docs/dashboards.md": dashboards_page(),
        "docs/metrics.md": metrics_page(),
        "docs/tables.md": tables_page(),
        "docs/topics.md": topics_page(),
    }


def compare(root: Path, files: dict[str, bytes]) -> list[Difference]:
    """Return how the checkout at `root` differs from `files`; empty when it does not."""
    differences = []
    for path, content in files.items():
        file = root / path
        if not file.exists():
            differences.append(Difference(path, f"missing: {path}"))
        elif (found := file.read_bytes()) != content:
            differences.append(Difference(path, f"differs: {path}{_first_lines(found, content)}"))
    for directory in _wholly_generated():
        for file in sorted((root / directory).glob("*")):
            path = file.relative_to(root).as_posix()
            if path not in files and file.is_file():
                differences.append(Difference(path, f"no longer generated: {path}"))
    return differences


def write(root: Path, files: dict[str, bytes], differences: Sequence[Difference]) -> None:
    """Make the files that differ equal to `files`; those no longer generated are deleted."""
    for difference in differences:
        file = root / difference.path
        if difference.path in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(files[difference.path])
        else:
            file.unlink()


def _wholly_generated() -> list[str]:
    return [
        SCHEMAS_DIRECTORY,
        READER_DIRECTORY,
        f"{GRAFANA_DIRECTORY}/{DASHBOARDS}",
        *(f"{CURRENT_DIRECTORY}/{topic.name}" for topic in load_topics().values()),
    ]


def _first_lines(found: bytes, content: bytes) -> str:
    try:
        before, after = found.decode().splitlines(), content.decode().splitlines()
    except UnicodeDecodeError:
        return f" ({len(found)} bytes instead of {len(content)})"
    changed = [
        line
        for line in difflib.unified_diff(before, after, lineterm="", n=0)
        if line[:1] in "+-" and not line.startswith(("+++", "---"))
    ]
    more = [f"    ... {len(changed) - DIFF_LINES} more lines"] if len(changed) > DIFF_LINES else []
    return "".join(f"\n    {line}" for line in changed[:DIFF_LINES]) + "".join(f"\n{line}" for line in more)
