"""The doctor says at once why it cannot even try to ask ClickHouse."""

from __future__ import annotations

from pathlib import Path

from pipeline.doctor.asking.store import ask_store
from schemas.settings import ClickHouse
from tests.support.patience import PATIENCE


async def test_a_password_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "missing"
    found = await ask_store(ClickHouse(url="http://127.0.0.1:1", password_file=str(file)), PATIENCE)
    assert found.unavailable == f"cannot use {file} of clickhouse.password_file: No such file or directory"
    assert "make the file readable" in found.advice
