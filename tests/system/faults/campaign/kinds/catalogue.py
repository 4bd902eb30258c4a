"""Every kind of fault: its name, what it strikes, how long it holds, and how it is done."""

from __future__ import annotations

from tests.system.faults.campaign.kinds import (
    clock,
    disks,
    engines,
    membership,
    moments,
    processes,
    store,
    topics,
)
from tests.system.faults.campaign.plan import Kind
from tests.system.faults.campaign.site import Strike

_AWAY = (0.0, 4.0)
_FROZEN = (8.0, 11.0)
"""Longer than the session of a worker (6 s)."""
_TROUBLED = (4.0, 9.0)

_KINDS: list[tuple[Kind, Strike]] = [
    (Kind("connector killed", "connector", _AWAY), processes.killed("connector")),
    (Kind("worker killed", "worker", _AWAY), processes.killed("worker")),
    (Kind("broker killed", "broker", _AWAY), processes.killed("broker")),
    (Kind("store killed", "store", _AWAY), processes.killed("store")),
    (Kind("connector frozen", "connector", _FROZEN), processes.frozen("connector")),
    (Kind("worker frozen", "worker", _FROZEN), processes.frozen("worker")),
    (Kind("worker frozen and replaced", "worker", _FROZEN), processes.frozen_with_successor),
    (Kind("broker frozen", "broker", _FROZEN), processes.frozen("broker")),
    (Kind("store frozen", "store", _FROZEN), processes.frozen("store")),
    (Kind("second worker joins and leaves", "worker", _TROUBLED), membership.one_joins),
    (Kind("two more workers join, one is killed", "worker", _TROUBLED), membership.two_join),
    (Kind("worker leaves to another", "worker", _AWAY, "broker"), membership.moves),
    (Kind("two connectors on the same engines", "connector", _TROUBLED, "broker"), membership.two_connectors),
    (Kind("worker killed before an insert", "worker", _AWAY), moments.killed_when("insert begins")),
    (Kind("worker killed between insert and commit", "worker", _AWAY), moments.killed_when("rows are in")),
    (Kind("worker killed before a rollup", "worker", _AWAY), moments.killed_when("rollup begins")),
    (Kind("worker killed in a rebalance", "worker", _AWAY), moments.killed_in_rebalance),
    (Kind("worker killed while it loads", "worker", _AWAY), moments.killed_while_loading),
    (Kind("worker killed while it stops", "worker", _AWAY), moments.killed_while_stopping),
    (Kind("store refuses connections", "store", _TROUBLED), store.store("refuses")),
    (Kind("store does not answer", "store", _FROZEN), store.store("silent")),
    (Kind("store is read-only", "store", _TROUBLED), store.store("read-only")),
    (Kind("store reports a full disk", "store", _TROUBLED), store.store("full")),
    (Kind("answers of the store are lost", "store", _TROUBLED), store.store("cuts")),
    (Kind("store's disk is full", "store", _TROUBLED), disks.store_full),
    (Kind("broker's disk is full", "broker", _TROUBLED), disks.broker_full),
    (Kind("positions topic lost", "connector", _AWAY, "broker"), topics.lost("positions")),
    (Kind("replica checkpoints lost", "worker", _AWAY, "broker"), topics.lost("checkpoints_replica")),
    (Kind("fleet checkpoints lost", "worker", _AWAY, "broker"), topics.lost("checkpoints_fleet")),
    (Kind("connector's clock an hour ahead", "connector", _TROUBLED), clock.clock_off(3600.0)),
    (Kind("connector's clock an hour behind", "connector", _TROUBLED), clock.clock_off(-3600.0)),
    (Kind("engine ends and comes back", "engines", _TROUBLED), engines.dies),
    (Kind("all engines restart", "engines", _AWAY), engines.all_restart),
    (Kind("network loses batches", "engines", _AWAY), engines.network_loses),
    (Kind("replays are not answered", "engines", _TROUBLED), engines.replays("silent")),
    (Kind("replays lie", "engines", _TROUBLED), engines.replays("lies")),
    (Kind("replays have other numbers", "engines", _TROUBLED), engines.replays("numbers")),
    (Kind("replays flood", "engines", _TROUBLED), engines.replays("floods")),
]

KINDS: list[Kind] = [kind for kind, _ in _KINDS]
STRIKES: dict[str, Strike] = {kind.name: strike for kind, strike in _KINDS}
