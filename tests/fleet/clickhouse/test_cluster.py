"""Two shards give the answers of one server: every view and every panel, asked at either node."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import clickhouse_connect
import msgspec
import pytest
from clickhouse_connect.driver.client import Client

from pipeline.clickhouse import migrations
from pipeline.clickhouse.sql_files import migrations as files
from pipeline.clickhouse.view_files import views
from pipeline.clickhouse.writer import Tables
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.panel import Panel
from pipeline.doctor.asking.store import ask_store
from pipeline.errors import StoreUnavailable
from schemas.rows import Row
from schemas.settings import ClickHouse, Settings
from tests.fleet.clickhouse.ddl_front import DdlFront
from tests.fleet.clickhouse.server import ClickHouseServer
from tests.support.checkout import ROOT
from tests.support.inputs.board_rows import HOUR, REPLICAS, hour_of_rows, runner, write_rows
from tests.support.sql_statements import everything

CLUSTER = "two"
PANELS = {panel.id: panel for board in BOARDS for panel in board.panels}
MORE = tuple("cdefgh")
READING = {"prefer_global_in_and_join": 1}


class Cluster(NamedTuple):
    """Two nodes, a shard each, with the tables of `settings`; `alone` is a server with the same rows."""

    nodes: tuple[ClickHouseServer, ClickHouseServer]
    front: DdlFront
    settings: Settings
    alone: ClickHouseServer
    plain: Settings

    def at(self, node: int) -> Settings:
        store = msgspec.structs.replace(self.settings.clickhouse, url=self.nodes[node].url)
        return msgspec.structs.replace(self.settings, clickhouse=store)


def rows() -> list[Row]:
    """Ten minutes of the hour of the boards, of eight replicas in two hash domains."""
    found = hour_of_rows()
    for name in MORE:
        for row in hour_of_rows():
            if getattr(row, "replica", "") == REPLICAS[0]:
                changed: dict[str, Any] = {"replica": name}
                if hasattr(row, "hash_domain") and name in MORE[3:]:
                    changed["hash_domain"] = "e"
                found.append(msgspec.structs.replace(row, **changed))
    last = HOUR + timedelta(minutes=10)
    return [row for row in found if getattr(row, "window", getattr(row, "time", HOUR)) < last]


@pytest.fixture(scope="module")
def cluster(
    library: Path, tmp_path_factory: pytest.TempPathFactory, free_port: Callable[..., int]
) -> Iterator[Cluster]:
    ports = [free_port() for _ in range(6)]
    shards = "".join(
        f"<shard><replica><host>127.0.0.1</host><port>{port}</port></replica></shard>" for port in ports[:2]
    )
    more = f"<remote_servers><{CLUSTER}>{shards}</{CLUSTER}></remote_servers>"
    directory = tmp_path_factory.mktemp("cluster")
    nodes = (
        ClickHouseServer(library, directory / "1", ports[2], ports[0], more=more),
        ClickHouseServer(library, directory / "2", ports[3], ports[1], more=more),
    )
    alone = ClickHouseServer(library, directory / "alone", ports[4], free_port())
    for server in (*nodes, alone):
        server.start()
    front = DdlFront([node.url for node in nodes], ports[5])
    settings = Settings(clickhouse=ClickHouse(url=front.url, cluster=CLUSTER))
    plain = Settings(clickhouse=ClickHouse(url=alone.url))
    try:
        with front.running():
            migrations.apply(settings)
            migrations.apply(plain)
            made = Cluster(nodes, front, settings, alone, plain)
            half = len(rows()) // 2
            # Two workers, at a node each, and what the first one wrote is written again.
            write_rows(made.at(0), rows()[:half])
            write_rows(made.at(1), rows()[half:])
            write_rows(made.at(1), rows()[:half:2])
            write_rows(plain, rows())
            yield made
    finally:
        for server in (*nodes, alone):
            server.kill()


def client_of(server: ClickHouseServer, database: str = "kvlens") -> Client:
    """As a reader whose profile is the documented one."""
    return clickhouse_connect.get_client(
        dsn=server.url, database=database, autogenerate_session_id=False, settings=READING
    )


def test_every_node_has_the_record_and_all_tables(cluster: Cluster) -> None:
    names = sorted([*(file.name for file in files()), *(view.recorded for view in views())])
    asked = client_of(cluster.alone)
    tables = asked.query("SELECT name FROM system.tables WHERE database = 'kvlens' ORDER BY name").result_rows
    for number, node in enumerate(cluster.nodes):
        client = client_of(node)
        local = "SELECT name FROM kvlens_local.schema_migrations FINAL ORDER BY name"
        assert [name for (name,) in client.query(local).result_rows] == names
        assert migrations.missing(cluster.at(number).clickhouse) == []
        there = client.query(
            "SELECT DISTINCT name FROM system.tables WHERE database LIKE 'kvlens%' ORDER BY name"
        )
        assert there.result_rows == tables
        client.close()
    assert migrations.apply(cluster.settings) == []
    asked.close()


def test_rows_of_a_key_meet_and_both_shards_have_some(cluster: Cluster) -> None:
    counts = []
    for node in cluster.nodes:
        client = client_of(node, "kvlens_local")
        counts.append(
            {replica for (replica,) in client.query("SELECT DISTINCT replica FROM flow_10s").result_rows}
        )
        client.close()
    assert all(counts)
    assert not counts[0] & counts[1]
    assert counts[0] | counts[1] == {*REPLICAS, *MORE}


@pytest.mark.parametrize("node", [0, 1])
def test_every_panel_shows_what_one_server_shows(cluster: Cluster, node: int) -> None:
    expected, found = (
        runner(cluster.alone, cluster.plain),
        runner(cluster.nodes[node], cluster.settings, **READING),
    )
    shown = 0
    for panel in PANELS.values():
        for chosen in ({}, {"model": ["m"], "replica": ["a", "f"]}):
            rows = asked(expected, panel, chosen)
            assert asked(found, panel, chosen) == rows, panel.id
            shown += len(rows)
    assert shown > len(PANELS)


def asked(run: Any, panel: Panel, chosen: dict[str, Any]) -> list[str]:
    """Rows as text, in no order: panels order by time alone where several series have a point."""
    return sorted(map(repr, rounded(run(panel.id, panel.sql, **chosen).result_rows)))


def rounded(rows: Any) -> Any:
    """Sums of floating-point numbers depend on their order, and so do their last digits."""
    if isinstance(rows, float):
        return float(f"{rows:.9g}")
    return [rounded(row) for row in rows] if isinstance(rows, (list, tuple)) else rows


@pytest.mark.parametrize("node", [0, 1])
def test_every_view_and_table_has_the_rows_of_one_server(cluster: Cluster, node: int) -> None:
    expected, found = client_of(cluster.alone), client_of(cluster.nodes[node])
    views = expected.query(
        "SELECT name, create_table_query, engine FROM system.tables WHERE database = 'kvlens' "
        "AND name NOT IN ('schema_migrations', 'rollups_due') AND engine != 'MaterializedView'"
    ).result_rows
    values = {
        "from": f"'{HOUR:%Y-%m-%d %H:%M:%S}'",
        "before": f"'{HOUR - timedelta(hours=1):%Y-%m-%d %H:%M:%S}'",
        "to": f"'{HOUR:%Y-%m-%d} {HOUR:%H}:59:59'",
        "step": "60",
        "seconds": "10",
        "length": "10",
        "seconds_from_hour_before": "10",
        "seconds_before": "10",
        "models": "[]",
        "replicas": "[]",
    }
    for name, text, engine in views:
        source = f"{name} FINAL" if engine != "View" else name
        wanted = {each for each in values if f"{{{each}:" in text}
        if wanted:
            source += "(" + ", ".join(f"{each} = {values[each]}" for each in sorted(wanted)) + ")"
        columns = "* EXCEPT version" if engine != "View" else "*"
        statement = f"SELECT {columns} FROM {source}"
        both = [
            sorted(map(repr, rounded(client.query(statement).result_rows))) for client in (expected, found)
        ]
        assert both[0] == both[1], name
    expected.close()
    found.close()


def test_rows_of_one_server_move_to_the_cluster_as_documented(cluster: Cluster) -> None:
    [copies] = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "clickhouse.md").read_text("utf-8"), re.S)
    migrations.apply(
        msgspec.structs.replace(cluster.settings, clickhouse=moved(cluster.front.url, "fleet", CLUSTER))
    )
    before = Settings(clickhouse=moved(cluster.nodes[0].url, "before", ""))
    migrations.apply(before)
    write_rows(before, rows())
    client = client_of(cluster.nodes[0], "fleet")
    statements = client.query(copies.replace("kvlens", "before")).result_rows
    assert len(statements) > 20
    for (statement,) in statements * 2:
        client.command(statement.removesuffix(";"))
    other = client_of(cluster.nodes[1], "fleet")
    for name in ("flow_10s", "flow_1m", "fills_1h", "sources", "engine_counters_by_hour", "models"):
        wanted = client.query(f"SELECT * FROM before.{name} FINAL").result_rows
        assert sorted(map(repr, other.query(f"SELECT * FROM {name} FINAL").result_rows)) == sorted(
            map(repr, wanted)
        )
    client.close()
    other.close()


def moved(url: str, database: str, cluster: str) -> ClickHouse:
    return ClickHouse(url=url, database=database, cluster=cluster)


async def test_a_shard_that_is_down_is_a_clear_error_and_nothing_is_shown_in_part(cluster: Cluster) -> None:
    # Not its process: a node whose peer resets a connection may abort, in this form of ClickHouse (26.7).
    lost = client_of(cluster.nodes[1])
    lost.command("SYSTEM STOP LISTEN TCP")
    try:
        store = cluster.at(0).clickhouse
        with pytest.raises(StoreUnavailable) as raised:
            migrations.missing(store)
        assert f"a shard of cluster {CLUSTER} does not answer" in str(raised.value)
        assert "\n" not in str(raised.value)
        assert raised.value.heals
        tables = Tables(store)
        with pytest.raises(StoreUnavailable, match=f"a shard of cluster {CLUSTER} does not answer"):
            await tables.insert(rows())
        tables.close()
    finally:
        lost.command("SYSTEM START LISTEN TCP")
        lost.close()
    tables = Tables(store)
    with suppress(StoreUnavailable):  # the other node may still hold a connection of before
        await tables.insert(rows())
    await tables.insert(rows())
    tables.close()


def test_statements_for_the_cluster_are_those_that_clickhouse_reads(cluster: Cluster) -> None:
    client = client_of(cluster.alone)
    for engines in ("plain", "replicated", "replicated-database"):
        store = ClickHouse(cluster=CLUSTER, engines=engines)  # type: ignore[arg-type]
        for statement in everything(store):
            client.command(f"EXPLAIN AST {statement}")
            assert ("ON CLUSTER 'two'" in statement) == (engines != "replicated-database")
    client.close()


async def test_the_doctor_sees_all_nodes(cluster: Cluster) -> None:
    for number in range(2):
        facts = await ask_store(cluster.at(number).clickhouse, 60)
        assert facts.unanswered == {}
        assert facts.migrations_missing == ()
        assert facts.written_at is not None


def test_an_unknown_cluster_is_told(cluster: Cluster) -> None:
    store = ClickHouse(url=cluster.nodes[0].url, cluster="nowhere", database=f"d_{secrets.token_hex(4)}")
    with pytest.raises(StoreUnavailable, match=r"it knows no cluster nowhere.*clickhouse\.cluster"):
        migrations.apply(Settings(clickhouse=store))
