"""Every process does its work with the documented rights alone, and no user can do more."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import clickhouse_connect
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from pipeline.clickhouse import migrations, sql_files
from pipeline.clickhouse.rights import roles
from pipeline.clickhouse.view_files import views
from pipeline.dashboards.boards import BOARDS
from pipeline.errors import MigrationRefused, StoreUnavailable
from schemas.settings import ClickHouse, Settings
from tests.fleet.clickhouse.server import ADMINISTRATOR, ClickHouseServer, User
from tests.support.inputs.board_rows import hour_of_rows, runner, write_rows

PASSWORD = secrets.token_hex(8)
ROLES = {role.name: role for role in roles("kvlens", engines=sql_files.engines(), filled=sql_files.filled())}


@pytest.fixture(scope="module")
def server(
    library: Path, tmp_path_factory: pytest.TempPathFactory, free_port: Callable[..., int]
) -> Iterator[ClickHouseServer]:
    users = [
        User(name, PASSWORD, [right.grant for right in role.rights], role.profile)
        for name, role in ROLES.items()
    ]
    # For each right of who migrates one user that lacks it.
    users += [
        User(f"without_{number}", PASSWORD, [right.grant for right in rights if right is not missing])
        for rights in (ROLES["kvlens_migrate"].rights,)
        for number, missing in enumerate(rights)
    ]
    running = ClickHouseServer(
        library, tmp_path_factory.mktemp("rights"), free_port(), free_port(), users=[ADMINISTRATOR, *users]
    )
    running.start()
    yield running
    running.kill()


def settings(server: ClickHouseServer, user: str) -> Settings:
    return Settings(
        clickhouse=ClickHouse(url=server.url, database="kvlens", username=user, password=PASSWORD)
    )


def test_each_user_does_its_work_and_nothing_else(server: ClickHouseServer) -> None:
    assert migrations.apply(settings(server, "kvlens_migrate")) == [
        *(file.name for file in sql_files.migrations()),
        *(view.recorded for view in views()),
    ]
    write_rows(settings(server, "kvlens_worker"), hour_of_rows())
    reader = settings(server, "kvlens_reader")
    assert migrations.missing(reader.clickhouse) == []
    run = runner(server, reader)
    for board in BOARDS:
        for panel in board.panels:
            run(panel.id, panel.sql)
    refused = {
        "kvlens_migrate": [
            "INSERT INTO kvlens.models SELECT * FROM kvlens.models",
            "DROP TABLE kvlens.models",
        ],
        "kvlens_worker": ["DROP TABLE kvlens.models", "CREATE TABLE kvlens.t (a UInt8) ENGINE = Memory"],
        "kvlens_reader": [
            "INSERT INTO kvlens.models SELECT * FROM kvlens.models",
            "TRUNCATE TABLE kvlens.models",
        ],
    }
    for user, statements in refused.items():
        client = clickhouse_connect.get_client(dsn=server.url, username=user, password=PASSWORD)
        for statement in [
            *statements,
            "CREATE USER x",
            "SELECT * FROM url('http://127.0.0.1', CSV, 'a String')",
        ]:
            with pytest.raises(DatabaseError, match=r"497|164"):
                client.command(statement)
        client.close()


def test_no_right_of_who_migrates_is_one_too_many(server: ClickHouseServer, tmp_path: Path) -> None:
    administrator = clickhouse_connect.get_client(dsn=server.url)
    newer = tmp_path / "newer"
    shutil.copytree(sql_files.DIRECTORY, newer)
    column = "ALTER TABLE {database}.models ADD COLUMN IF NOT EXISTS more UInt8;"
    (newer / "tables" / "0099_more.sql").write_text(column)
    for number, right in enumerate(ROLES["kvlens_migrate"].rights):
        administrator.command("DROP DATABASE IF EXISTS kvlens SYNC")
        of_upgrades = right.grant.startswith(("DROP VIEW", "ALTER ADD COLUMN"))
        if of_upgrades:
            migrations.apply(settings(server, "kvlens_migrate"))
        with pytest.raises((StoreUnavailable, MigrationRefused)) as raised:
            migrations.apply(
                settings(server, f"without_{number}"), directory=newer if of_upgrades else sql_files.DIRECTORY
            )
        assert "ACCESS_DENIED" in str(raised.value), right
    administrator.command("DROP DATABASE IF EXISTS kvlens SYNC")
    administrator.close()
