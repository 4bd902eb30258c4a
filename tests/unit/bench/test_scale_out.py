"""How many replicas several processes carry."""

from __future__ import annotations

from fleet_load.scale_out import carried, connector_of, names, worker_of

from connectors.discovery.shards import Shard


def test_one_process_carries_what_it_carries() -> None:
    assert carried(100, worker_of(8, 1), names()) == carried(100, connector_of(1), names()) == 100


def test_the_process_that_has_most_decides() -> None:
    assert carried(2, ["first", "second"].index, ["first", "second", "first", "second", "second"]) == 4
    assert 8 * 100 * 0.7 < carried(100, connector_of(8), names()) < 8 * 100


def test_workers_beyond_the_partitions_carry_nothing() -> None:
    assert carried(100, worker_of(8, 16), names()) == carried(100, worker_of(8, 8), names())
    assert carried(100, worker_of(32, 16), names()) > 1.5 * carried(100, worker_of(32, 8), names())


def test_every_replica_has_the_connector_whose_shard_owns_it() -> None:
    keeper_of = connector_of(4)
    assert all(Shard(keeper_of(f"r{number}"), 4).owns(f"r{number}") for number in range(100))
