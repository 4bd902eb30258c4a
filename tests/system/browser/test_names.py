"""Names that engines and operators choose are text on the page, whatever is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest

from pipeline.dashboards.boards import BOARDS
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.rows import Row
from tests.support.inputs.board_rows import HOUR, hour_of_rows, migrated, write_rows
from tests.system.browser.tabs import Open, Served, serve

pytestmark = pytest.mark.night

RANGE = f"from={int(HOUR.timestamp())}&to={int(HOUR.timestamp()) + 3599}&refresh=0"
MODEL = """<img src=x onerror="window.ran='model'">"""
REPLICAS = {"a": "<script>window.ran='replica'</script>", "b": "\"'><svg onload=\"window.ran='other'\">"}


def renamed(row: Row) -> Row:
    """Return the row with names that are markup."""
    names = {"model": MODEL} if hasattr(row, "model") else {}
    replica = getattr(row, "replica", None)
    return msgspec.structs.replace(row, **names, **({"replica": REPLICAS[replica]} if replica else {}))


@pytest.fixture(scope="module")
def hostile(
    store: EmbeddedStore, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    settings = migrated(store)
    write_rows(settings, [renamed(row) for row in hour_of_rows()])
    server = serve(settings, free_port(), tmp_path_factory.mktemp("names"))
    yield server
    server.stop()


@pytest.mark.parametrize("board", [board.id for board in BOARDS])
def test_markup_in_names_is_shown_and_not_run(hostile: Served, visit: Open, board: str) -> None:
    tab = visit(hostile.origin)
    tab.open(f"board={board}&{RANGE}")
    assert tab.page.evaluate("window.ran") is None
    assert tab.page.locator("section img, section script, section svg[onload]").count() == 0
    if board == "fleet":
        cells = tab.page.locator("#fleet-replicas tbody td").all_text_contents()
        assert MODEL in cells
        assert set(REPLICAS.values()) <= {*cells}
