"""What the positions keep where Kafka takes none."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaError

from connectors.positions.keeper import Positions, PositionsUnwritable
from connectors.sources import Source
from schemas.settings import Kafka

SOURCE = Source("r", 0, "m", "t", "m/s/t", "tcp://127.0.0.1:1")


class Reader:
    async def stored(self) -> dict[Any, Any]:
        return {}

    async def ends(self) -> dict[int, int]:
        return {0: 0}

    async def by_the_log(self, ends: object) -> list[Any]:
        return []

    async def follow(self, stored: object, ends: object) -> None: ...


class Log:
    topic = "events"
    partitions = 1
    refuses = True

    async def write(self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]) -> None:
        if self.refuses:
            raise KafkaError("not authorized")


async def test_sources_whose_positions_cannot_be_written_are_not_kept() -> None:
    log = Log()
    told = cast(Any, SimpleNamespace(positions_loaded=lambda sources, known: None))
    positions = Positions(Kafka(), cast(Any, log), told, lambda source, by: None)
    positions._reader, positions._partitions = cast(Any, Reader()), 1
    for _ in range(2):
        with pytest.raises(PositionsUnwritable):
            await positions.resume([SOURCE])
        assert SOURCE.key not in positions._ledger
        assert not positions._ledger.take(everything=True)
    log.refuses = False
    assert SOURCE.key in await positions.resume([SOURCE])
    assert SOURCE.key in positions._ledger
