"""The files of deploy/grafana: what Grafana provisions, and a kustomization that makes ConfigMaps of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pipeline.dashboards.grafana import alerting, dashboard, runbook
from pipeline.dashboards.grafana.query import DATA_SOURCE_TYPE, DATA_SOURCE_UID
from pipeline.dashboards.panel import Alert, Board

DASHBOARDS = "dashboards"
KUSTOMIZATION = "kustomization.yaml"
ALERTS = "provisioning/alerting/kvlens.json"
DATA_SOURCE = "provisioning/datasources/kvlens.yaml"
FOLDER = "kvlens"
_DATA_SOURCE = f"""\
# Grafana replaces ${{...}} by its environment. KVLENS_CLICKHOUSE_SECURE is true for https, false for http.
apiVersion: 1
datasources:
  - name: kvlens
    uid: {DATA_SOURCE_UID}
    type: {DATA_SOURCE_TYPE}
    jsonData:
      host: ${{KVLENS_CLICKHOUSE_HOST}}
      port: ${{KVLENS_CLICKHOUSE_PORT}}
      protocol: http
      secure: ${{KVLENS_CLICKHOUSE_SECURE}}
      username: ${{KVLENS_CLICKHOUSE_USERNAME}}
      defaultDatabase: kvlens
      dialTimeout: "10"
      queryTimeout: "30"
    secureJsonData:
      password: ${{KVLENS_CLICKHOUSE_PASSWORD}}
"""


def files(boards: tuple[Board, ...], alerts: tuple[Alert, ...], runbook_text: str) -> dict[str, bytes]:
    """Return {path relative to deploy/grafana: content}; `runbook_text` is that of docs/alerts.md."""
    shown = {board.id: _json(dashboard.compiled(board)) for board in boards}
    shown["runbook"] = _json(runbook.compiled(alerts, runbook_text))
    rules = _json(alerting.compiled(alerts, boards))
    return {
        **{f"{DASHBOARDS}/{name}.json": content.encode() for name, content in shown.items()},
        ALERTS: rules.encode(),
        DATA_SOURCE: _DATA_SOURCE.encode(),
        KUSTOMIZATION: _kustomization(shown).encode(),
    }


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _kustomization(boards: Iterable[str]) -> str:
    """Return a kustomization of ConfigMaps with the labels that sidecars of Grafana's Helm chart look for.

    It is JSON, which is also YAML.
    """
    folder = {"annotations": {"grafana_folder": FOLDER}}
    maps = [
        *(
            _config_map(name, "dashboard", f"kvlens-{name}.json", f"{DASHBOARDS}/{name}.json", **folder)
            for name in boards
        ),
        _config_map("alerts", "alert", "kvlens.json", ALERTS),
        _config_map("datasource", "datasource", "kvlens.yaml", DATA_SOURCE),
    ]
    return _json(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "generatorOptions": {"disableNameSuffixHash": True},
            "configMapGenerator": maps,
        }
    )


def _config_map(name: str, kind: str, file: str, origin: str, **options: Any) -> dict[str, Any]:
    return {
        "name": f"kvlens-grafana-{name}",
        "files": [f"{file}={origin}"],
        "options": {"labels": {f"grafana_{kind}": "1"}, **options},
    }
