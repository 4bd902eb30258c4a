"""The main job where no clock is in UTC: terminal, page, README's SQL, an alert, advice and metrics agree."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest

from pipeline.cli.options import load_running
from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.grafana.query import grafana_sql
from schemas.settings import Settings
from tests.fleet.clickhouse.server import ClickHouseServer, User
from tests.integration.docs.test_readme import blocks
from tests.support.grafana.variables import Range, sent
from tests.support.processes import KVLENS, Started, kvlens, started
from tests.system.browser.tabs import Open, chromium, visit

__all__ = ["chromium", "visit"]

LONGEST = 900.0
TRAFFIC_SECONDS = 75
"""Until the replica with too little cache evicts what it needs again."""
OVER_SECONDS = 600
STATEMENT_SECONDS = 240
"""How long a statement takes on a machine with other work is not what this is about."""
PATIENT = {
    "KVLENS_CLICKHOUSE__TIMEOUT_SECONDS": str(STATEMENT_SECONDS),
    "KVLENS_PAGE__PANEL_SECONDS": str(STATEMENT_SECONDS),
}
Say = Callable[[str], None]


@dataclass
class Readers:
    """Whoever reads what runs in a data directory, in a zone."""

    directory: Path
    zone: str
    origin: str
    say: Say

    def agree(self, visit: Open) -> None:
        self.readme_finds_rows()
        self.capacity_alert_fires()
        self.advice_finds()
        self.metrics_have_figures()
        self.page_shows(visit)

    @property
    def settings(self) -> Settings:
        return load_running(None, self.directory).settings

    def sql(self, statement: str, zone: str) -> list[Sequence[object]]:
        store = self.settings.clickhouse
        with clickhouse_connect.get_client(dsn=store.url, database=store.database) as client:
            return list(client.query(statement, settings={"session_timezone": zone}).result_rows)

    def readme_finds_rows(self) -> None:
        [question] = blocks("sql")
        found = {zone: self.sql(question, zone) for zone in ("UTC", self.zone)}
        self.say(f"README's SQL: { ({zone: len(rows) for zone, rows in found.items()}) } rows")
        replicas = {zone: {row[1] for row in rows} for zone, rows in found.items()}
        assert replicas["UTC"] == replicas[self.zone] != set()
        # The second is asked moments later: at most one more window.
        assert abs(len(found["UTC"]) - len(found[self.zone])) <= 2 * len(replicas["UTC"])

    def capacity_alert_fires(self) -> None:
        [alert] = [alert for alert in ALERTS if alert.id == "capacity-loss"]
        end = datetime.now(timezone.utc)
        over = Range(datetime.fromtimestamp(end.timestamp() - OVER_SECONDS, timezone.utc), end, 10)
        statement = sent(grafana_sql(alert.id, alert.sql), (), {}, over)
        found = {zone: self.sql(statement, zone) for zone in ("UTC", self.zone)}
        self.say(f"alert capacity-loss: {found}")
        worst = [max(float(str(row[-1])) for row in rows) for rows in found.values()]
        assert min(worst) > 0
        assert worst[0] == pytest.approx(worst[1], abs=0.05)

    def advice_finds(self) -> None:
        code, out, err = kvlens(
            *("advise", "--data-dir", str(self.directory), "--range", "15m", "--json"),
            cwd=self.directory,
            TZ=self.zone,
            KVLENS_CLICKHOUSE__TIMEOUT_SECONDS=str(STATEMENT_SECONDS),
        )
        assert code == 0, err
        findings = json.loads(out)["findings"]
        self.say(f"advise: {len(findings)} findings, the first {findings[0]['finding']}")

    def metrics_have_figures(self) -> None:
        with urllib.request.urlopen(f"{self.origin}/fleet/metrics", timeout=STATEMENT_SECONDS) as answer:
            lines = answer.read().decode().splitlines()
        figures = [line for line in lines if line.startswith("kvlens_fleet_")]
        self.say(f"/fleet/metrics: {len(figures)} figures")
        assert any(line.startswith("kvlens_fleet_cached_tokens{") for line in figures)

    def page_shows(self, visit: Open) -> None:
        tab = visit(self.origin, zone=self.zone)
        tab.open("range=300")
        assert tab.page.locator(".note.problem").count() == 0
        answer = " ".join(tab.page.locator("#fleet-answer").inner_text().split())
        tab.shot(f"zone-{self.zone.replace('/', '-')}")
        tab.page.close()  # or it asks on when the fleet has stopped
        self.say(f"page: {answer[:200]}")
        assert re.search(r"\d %", answer)


@contextmanager
def running(command: list[str], log: Path, cwd: Path, more: dict[str, Any]) -> Iterator[Started]:
    process = started(command, log, cwd=cwd, **more)
    try:
        yield process
        process.stop()
    finally:
        process.close()


def origin(process: Started) -> str:
    process.wait_said("boards are on http", seconds=LONGEST)
    [found] = re.findall(r"boards are on (http://[^\s/]+)", process.said())
    return str(found)


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York"])
def test_a_demo_in_a_zone(zone: str, tmp_path: Path, visit: Open, say: Say) -> None:
    data = tmp_path / "data"
    command = [*KVLENS, "demo", "--data-dir", str(data)]
    with running(command, tmp_path / "demo.out", tmp_path, {"TZ": zone, **PATIENT}) as demo:
        demo.wait_said("ready after", seconds=LONGEST)
        time.sleep(TRAFFIC_SECONDS)
        Readers(data, zone, origin(demo), say).agree(visit)
    told = [line for line in demo.said().splitlines() if " sources" in line]
    say(f"terminal: {told[-1]}")
    assert re.search(r"[1-9]\d* sources", told[-1])


def test_a_store_whose_sessions_are_in_tokyo(
    library: Path, tmp_path: Path, free_port: Callable[..., int], visit: Open, say: Say
) -> None:
    zone = "Asia/Tokyo"
    user = User("default", profile={"session_timezone": zone})
    server = ClickHouseServer(
        *(library, tmp_path / "store", free_port(), free_port()),
        users=(user,),
        more=f"<timezone>{zone}</timezone>",
    )
    server.start()
    try:
        ports, config = free_port(21), tmp_path / "kvlens.toml"
        engines = [
            *(*KVLENS, "simulate", "--replicas", "2", "--dp-ranks", "2", "--blocks", "100", "--seed", "1"),
            *("--base-port", str(ports), "--replay-base-port", str(ports + 10)),
            *("--metrics-port", str(ports + 20), "--wait-subscribers", "300"),
            *("--write-config", str(config)),
        ]
        with running(engines, tmp_path / "engines.out", tmp_path, {"TZ": zone}):
            while not config.exists():
                time.sleep(0.2)
            time.sleep(1)
            config.write_text(f'{config.read_text()}\n[clickhouse]\nurl = "{server.url}"\n')
            more = {"TZ": zone, **PATIENT}
            with running([*KVLENS, "up"], tmp_path / "up.out", tmp_path, more) as up:
                up.wait_said("running; Ctrl-C stops it", seconds=LONGEST)
                time.sleep(TRAFFIC_SECONDS)
                Readers(tmp_path / ".kvlens" / "up", zone, origin(up), say).agree(visit)
    finally:
        server.end()
