"""What the ClickHouse plugin connects to with a provisioned data source.

Rules as written in grafana/grafana, `pkg/services/provisioning/values/values.go` (what is not set is empty)
and grafana/clickhouse-datasource 4.20.0, `pkg/plugin/settings.go` (`LoadSettings`) and
`pkg/plugin/driver.go` (`buildClickHouseOptions`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_TRUTHS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


class InvalidSettings(Exception):
    """The plugin cannot parse a setting."""


class Connection(NamedTuple):
    scheme: str
    host: str
    port: int
    username: str
    password: str
    database: str


def connection(file: str, environment: Mapping[str, str]) -> Connection:
    """Return what the only source of a file of data sources leads to; raises InvalidSettings."""
    lines = re.findall(r"^\s+(?:- )?(\w+): (.*)$", file, re.MULTILINE)
    settings = {
        name: re.sub(r"\$\{(\w+)\}", lambda found: environment.get(found[1], ""), value).strip('"')
        for name, value in lines
    }
    secure = settings.get("secure", "false").lower()
    if secure not in _TRUTHS:
        raise InvalidSettings("secure")
    if not settings["port"].isdigit():
        raise InvalidSettings("port")
    if settings["protocol"] != "http":
        raise InvalidSettings("protocol")
    return Connection(
        "https" if _TRUTHS[secure] else "http",
        settings["host"],
        int(settings["port"]),
        settings["username"],
        settings["password"],
        settings["defaultDatabase"],
    )
