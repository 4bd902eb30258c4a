"""What the simulated replicas do, and how long: the load of all parts is the same."""

from __future__ import annotations

from large_fleet import BLOCKS_A_BATCH, BLOCKS_A_SECOND

BATCHES_A_SECOND = BLOCKS_A_SECOND // BLOCKS_A_BATCH
"""Of each replica: 20, each with eight blocks stored and eight removed."""
RECORDS_A_SECOND = 10
"""Of each replica: what a linger of 0.1 s makes of them, two batches each."""
PARTITIONS = 8
BLOCKS = 10_000
"""Resident in each replica."""
SETTLE_SECONDS = 5
"""Of load before it is measured."""
SECONDS = 40
"""Measured."""
LOAD_SECONDS = SETTLE_SECONDS + SECONDS + 3
