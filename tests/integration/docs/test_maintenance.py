"""What the page on maintenance says about a replica's rows is so: its statement takes them, and no others."""

from __future__ import annotations

import re

from clickhouse_connect.driver.client import Client

from schemas.settings import Settings
from tests.support.checkout import ROOT

PAGE = (ROOT / "docs" / "maintenance.md").read_text("utf-8")
GONE, STAYS = "vllm-9", "vllm-1"


def test_a_replica_is_deleted_from_every_table(store_client: Client, own: Settings) -> None:
    database = own.clickhouse.database
    tables: dict[str, list[str]] = {}
    asked = store_client.query(
        "SELECT table, name, type FROM system.columns WHERE database = {name:String} AND table IN "
        "(SELECT name FROM system.tables WHERE database = {name:String} AND engine LIKE '%MergeTree')",
        parameters={"name": database},
    )
    for table, column, kind in asked.result_rows:
        tables.setdefault(table, []).extend(
            [column] if column == "replica" or kind.startswith("Date") else []
        )
    of_replicas = {table: columns for table, columns in tables.items() if "replica" in columns}
    assert len(of_replicas) > 15
    for table, columns in of_replicas.items():
        values = ", ".join(
            "arrayJoin(['vllm-9', 'vllm-1'])" if one == "replica" else "now()" for one in columns
        )
        store_client.command(f"INSERT INTO {database}.{table} ({', '.join(columns)}) SELECT {values}")
        assert names(store_client, f"{database}.{table}") == {GONE, STAYS}
    [question] = re.findall(r"```sql\n( *SELECT concat\('ALTER TABLE.*?)```", PAGE, re.S)
    question = question.replace("kvlens", database)
    statements = [row[0] for row in store_client.query(question).result_rows]
    assert len(statements) == len(of_replicas)
    for statement in statements:
        store_client.command(statement.rstrip(";"))
    for table in of_replicas:
        assert names(store_client, f"{database}.{table}") == {STAYS}, table


def names(client: Client, table: str) -> set[str]:
    return {row[0] for row in client.query(f"SELECT DISTINCT replica FROM {table}").result_rows}
