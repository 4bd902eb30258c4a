"""The watchdog ends a worker that stands still with lag, and no other."""

import pytest

from pipeline.errors import Stalled
from pipeline.worker.watchdog import PartitionProgress, Watchdog


def test_lag_without_progress_is_a_stall() -> None:
    dog = Watchdog("events", 60.0)
    dog.observe(0.0, {0: PartitionProgress(5, 9), 1: PartitionProgress(5, 5)}, excused=False)
    dog.observe(59.0, {0: PartitionProgress(5, 9), 1: PartitionProgress(5, 5)}, excused=False)
    with pytest.raises(Stalled, match=r"events\[0\] has 4 records waiting"):
        dog.observe(60.0, {0: PartitionProgress(5, 9), 1: PartitionProgress(5, 5)}, excused=False)


def test_progress_idleness_excuses_and_new_owners_are_no_stall() -> None:
    dog = Watchdog("events", 10.0)
    for now in range(0, 100, 5):
        dog.observe(now, {0: PartitionProgress(now, 1000), 1: PartitionProgress(7, 7)}, excused=False)
    dog.observe(100.0, {0: PartitionProgress(95, 1000)}, excused=True)
    dog.observe(109.0, {0: PartitionProgress(95, 1000)}, excused=False)
    dog.observe(200.0, {}, excused=False)
    dog.observe(300.0, {0: PartitionProgress(95, 1000)}, excused=False)
    dog.observe(309.0, {0: PartitionProgress(95, 1000)}, excused=False)
