"""Faust's manager of tables, where there are none: it starts without waiting a second for some."""

from __future__ import annotations

from faust.tables import TableManager

from pipeline.worker.consumer.transport import FAUST_LOG


class NoTables(TableManager):
    """Upstream sleeps first, and consumers join their groups after that."""

    logger = FAUST_LOG

    async def on_start(self) -> None:
        await self._update_channels()
        await self.recovery.start()
