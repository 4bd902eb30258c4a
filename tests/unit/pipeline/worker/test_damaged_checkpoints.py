"""A damaged checkpoint is refused by name, or makes a state that works: its rows fit their tables."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from pipeline.errors import CheckpointUnreadable
from pipeline.worker.roles.fleet import FleetRole
from pipeline.worker.roles.replica import ReplicaRole
from pipeline.worker.roles.role import Role
from schemas.settings import Settings, Worker
from tests.support.inputs.mutants import mutated
from tests.support.inputs.residency_walks import residency
from tests.support.inputs.source_walks import BEGAN, Walk
from tests.support.suite.night import night_rows
from tests.support.table_columns import misfits

MUTANTS = 150


def replica_case(seed: int) -> tuple[Role[Any, Any], dict[bytes, bytes], list[Any], list[Any]]:
    settings = Settings(worker=Worker(fine_block_age_seconds=60.0))
    role = ReplicaRole(settings, shards=2)
    records = list(Walk(seed, hybrid=seed % 2 == 0).records(60))
    return role, *saved(role, records[:45]), records[45:]


def fleet_case(seed: int) -> tuple[Role[Any, Any], dict[bytes, bytes], list[Any], list[Any]]:
    rng = random.Random(seed)
    role = FleetRole(Settings(), shards=1)
    records = [residency(offset, rng) for offset in range(40)]
    return role, *saved(role, records[:30]), records[30:]


def saved(role: Role[Any, Any], records: list[Any]) -> tuple[dict[bytes, bytes], list[Any]]:
    state: Any = role.restore(0, {})
    latest: dict[bytes, bytes] = {}
    for offset, record in enumerate(records):
        state.apply(offset, record)
        if offset % 10 == 9:
            latest.update(state.cut(BEGAN + 1000.0 * offset).checkpoints)
    state.leaves()
    latest.update(state.cut(BEGAN + 1e5).checkpoints)
    return {key: value for key, value in latest.items() if value is not None}, records


def works(state: Any, after: list[Any], now: float) -> None:
    """Go on with it: nothing fails, and rows fit their tables."""
    for record in after:
        state.apply(state.next_offset, record)
        cut = state.cut(now)
        for row in cut.rows:
            assert not misfits(row), row


CASES = {"replica": replica_case, "fleet": fleet_case}


@pytest.mark.parametrize(("seed", "mutants"), [(2, MUTANTS // 5), *night_rows((0, MUTANTS), (1, MUTANTS))])
@pytest.mark.parametrize("agent", CASES)
def test_any_mutated_record_is_refused_or_restores_to_a_state_that_works(
    agent: str, seed: int, mutants: int
) -> None:
    role, latest, _, after = CASES[agent](seed)
    works(role.restored(0, latest), after, BEGAN + 2e5)
    rng = random.Random(seed)
    refused = 0
    for _ in range(mutants):
        damaged = one_mutated(latest, rng)
        try:
            state = role.restored(0, damaged)
        except CheckpointUnreadable:
            refused += 1
        else:
            works(state, after[:4], BEGAN + 2e5)
    assert refused > mutants // 5, "most mutants mean something else"


def one_mutated(latest: Mapping[bytes, bytes], rng: random.Random) -> dict[bytes, bytes]:
    damaged = dict(latest)
    key = rng.choice(list(damaged))
    if rng.random() < 0.03:
        del damaged[key]
    elif rng.random() < 0.03:
        damaged[mutated(key, rng) if key[:1] != b"@" else b"\xc1"] = damaged[key]
    else:
        damaged[key] = mutated(damaged[key], rng)
    return damaged


def test_a_record_is_named() -> None:
    role, latest, _, _ = replica_case(1)
    key = next(key for key in latest if key.endswith(b"\xa4base"))
    with pytest.raises(CheckpointUnreadable, match=r"the record under the key .*base"):
        role.restored(0, {**latest, key: b"\x81\xa1x" + b"\x91" * 100_000})


@pytest.mark.parametrize("agent", CASES)
def test_the_line_says_what_to_do(agent: str) -> None:
    role, latest, *_ = CASES[agent](0)
    with pytest.raises(CheckpointUnreadable) as raised:
        role.restored(0, {key: value[:-1] for key, value in latest.items()})
    line = str(raised.value)
    assert "\n" not in line
    assert line.startswith(
        f"the checkpoint in {role.checkpoints}[0] cannot be read: the record under the key "
    )
    assert "kvlens state rebuild" in line
