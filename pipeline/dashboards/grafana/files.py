"""The files of deploy/grafana: what Grafana provisions, and the same as ConfigMaps for its sidecars."""

from __future__ import annotations

from typing import Any

import msgspec

from pipeline.dashboards.grafana import alerting, dashboard, runbook
from pipeline.dashboards.grafana.query import DATA_SOURCE_TYPE, DATA_SOURCE_UID
from pipeline.dashboards.panel import Alert, Board

DASHBOARDS = "dashboards"
CONFIG_MAPS = "configmaps"
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
        **{
            f"{CONFIG_MAPS}/{name}.yaml": _config_map(name, "dashboard", f"kvlens-{name}.json", content)
            for name, content in shown.items()
        },
        f"{CONFIG_MAPS}/alerts.yaml": _config_map("alerts", "alert", "kvlens.json", rules),
        f"{CONFIG_MAPS}/datasource.yaml": _config_map(
            "datasource", "datasource", "kvlens.yaml", _DATA_SOURCE
        ),
    }


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _config_map(name: str, kind: str, file: str, content: str) -> bytes:
    """Return a ConfigMap with the label by which the sidecar of Grafana's Helm chart finds such files."""
    lines = [
        "apiVersion: v1",
        "kind: ConfigMap",
        "metadata:",
        f"  name: kvlens-grafana-{name}",
        "  labels:",
        f'    grafana_{kind}: "1"',
        *(["  annotations:", f"    grafana_folder: {FOLDER}"] if kind == "dashboard" else []),
        "data:",
        f"  {file}: |",
        *(f"    {line}".rstrip() for line in content.splitlines()),
    ]
    return ("\n".join(lines) + "\n").encode()
