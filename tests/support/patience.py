"""How long tests wait for what must come: long enough for a machine that is busy with other things."""

from __future__ import annotations

from pipeline.local.broker import embedded as broker
from pipeline.local.clickhouse import embedded as store

PATIENCE = 240.0
"""Seconds. Who waits goes on at once when what it waits for is there, so only failures take so long."""


def patient() -> None:
    """Give the embedded broker and store of this process as long to start, too."""
    broker._START_SECONDS = PATIENCE
    store._START_SECONDS = PATIENCE
