"""What an event of an unknown type degrades, and which medium a clear empties."""

from __future__ import annotations

import pytest

from schemas.events import Cleared, Event, Removed, Stored, Undecodable
from schemas.rows import OccupancyRow, SourceRow, StreamHealthRow
from schemas.settings import Worker
from tests.support.inputs.event_records import sent
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent

START = 1_800_000_000.0


FIRST = [Stored(packed(1), 16), Stored(packed(2), 16, medium="cpu")]
UNKNOWN = "BlockPondered"


class Life:
    """A source whose first batch stored a block on the GPU and one on the CPU."""

    def __init__(self, **settings: object) -> None:
        self.agent = ReplicaAgent(Worker(**settings))  # type: ignore[arg-type]
        self.occupancy: dict[str, OccupancyRow] = {}
        """By medium, of the open window."""
        self.others: dict[str, str] = {}
        self.batch(*FIRST)

    def batch(self, *events: Event) -> None:
        seq = len(self.agent.log)
        self.agent.apply(sent(seq, START + seq / 4, *events))

    def trusts(self) -> dict[str, str]:
        """Return the trust of each medium that has rows, of the window ('stream') and of the source."""
        self._cut()
        return {medium: row.trust for medium, row in self.occupancy.items()} | self.others

    def blocks(self) -> dict[str, int]:
        self._cut()
        return {medium: row.blocks for medium, row in self.occupancy.items()}

    def _cut(self) -> None:
        for row in self.agent.cut(START + 5).rows:
            if isinstance(row, OccupancyRow):
                self.occupancy[row.medium] = row
            elif isinstance(row, StreamHealthRow):
                self.others["stream"] = row.trust
            elif isinstance(row, SourceRow):
                self.others["source"] = row.trust


def test_a_type_that_names_its_medium_degrades_that_one_alone_until_it_is_cleared() -> None:
    life = Life()
    life.batch(Undecodable("unknown_type", 1, 1, UNKNOWN, "cpu"))
    assert life.trusts() == {"gpu": "complete", "cpu": "degraded", "stream": "degraded", "source": "degraded"}
    life.batch(Cleared())  # of the GPU
    assert life.trusts()["cpu"] == "degraded"
    life.batch(Cleared("cpu"))
    assert life.trusts() == {"gpu": "complete", "cpu": "complete", "stream": "degraded", "source": "complete"}
    assert life.blocks() == {"gpu": 0, "cpu": 0}


def test_a_type_that_names_none_degrades_all_until_each_is_cleared() -> None:
    life = Life()
    life.batch(Undecodable("unknown_type", 1, 1, UNKNOWN))
    assert {*life.trusts().values()} == {"degraded"}
    life.batch(Cleared("cpu"))
    assert life.trusts() == {"gpu": "degraded", "cpu": "complete", "stream": "degraded", "source": "degraded"}
    life.batch(Cleared())
    assert life.trusts()["source"] == "complete"


def test_a_medium_of_which_nothing_was_known_makes_the_source_degraded() -> None:
    life = Life()
    life.batch(Undecodable("unknown_type", 1, 2, UNKNOWN, "disk"))
    trusts = life.trusts()
    assert (trusts["gpu"], trusts["cpu"], trusts["source"]) == ("complete", "complete", "degraded")
    life.batch(Cleared("disk"))
    assert life.trusts()["source"] == "complete"


@pytest.mark.parametrize("scope", ["gpu", "all"])
def test_a_clear_of_one_medium_empties_no_other_whatever_the_setting(scope: str) -> None:
    life = Life(clear_scope=scope)
    life.batch(Cleared("cpu"))
    assert life.blocks() == {"gpu": 1, "cpu": 0}
    life.batch(Stored(packed(3), 16, medium="cpu"), Cleared())
    assert life.blocks() == {"gpu": 0, "cpu": 0 if scope == "all" else 1}


def test_blocks_that_move_keep_their_number() -> None:
    life = Life()
    life.batch(Removed(packed(1)), Stored(packed(1), 0, medium="disk"))
    assert life.blocks() == {"gpu": 0, "cpu": 1, "disk": 1}
    assert {*life.trusts().values()} == {"complete"}


def test_media_that_nobody_has_room_for_degrade_the_source() -> None:
    life = Life(max_pool_sizes=2)
    life.batch(Cleared("nvme"))
    assert life.trusts()["source"] == "degraded"
    assert life.blocks() == {"gpu": 1, "cpu": 1}
