"""Lying engines beside honest ones: a short `make fuzz ARGS=live`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.fuzz.live import Attack, Servers

pytestmark = pytest.mark.night

FRAMES = 8_000
"""Few of them tell of a restart, and of these some while the connector asks for something else."""


def test_figures_of_honest_engines_are_right_whatever_others_say(
    broker: EmbeddedBroker, store: EmbeddedStore, free_port: Callable[[], int], tmp_path: Path
) -> None:
    attack = Attack(Servers(broker.bootstrap_servers, store.url, tmp_path, free_port), seed=1)
    try:
        outcome = attack.run(FRAMES)
    finally:
        attack.close()
    assert outcome.died == []
    assert outcome.found == outcome.expected
    assert outcome.honest_trust == {"complete"}
    assert outcome.recount_equal, outcome.recount
    # The lies were told, and came as far as the tables. One liar leaves out what is to be asked for.
    assert min(outcome.sent.values()) >= FRAMES // 5, outcome.sent
    assert all(outcome.requests.values())
    liars = outcome.liars
    assert set(liars) == {"liar-payloads", "liar-numbers", "liar-times", "liar-answers"}
    assert liars["liar-payloads"]["undecodable"] > FRAMES // 40
    assert liars["liar-numbers"]["restarts"] > 0
    assert liars["liar-numbers"]["lost"] > 0
    # Who is asked often enough may happen to tell everything that is missing: that stream is complete.
    degraded = {name for name, row in liars.items() if row["trust"] == "degraded"}
    assert degraded == {name for name, row in liars.items() if row["lost"] or row["undecodable"]}, liars
    assert degraded >= {"liar-payloads", "liar-numbers", "liar-times"}
