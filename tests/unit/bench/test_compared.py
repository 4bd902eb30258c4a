"""Two checkouts measured in turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkout import Checkout
from figures import Figures
from fleet_load import compared
from fleet_load.load import Paced
from fleet_load.measured import Measured, Spent

NEW, OLD = (Checkout(name, Path(name), Path("python")) for name in ("new", "old"))


def _measured(cores: float) -> Measured:
    return Measured("worker", 100, 0.5, Spent(cores, 0.0), 1000.0, 500.0, 0.0, 0.0, Paced(0.0, 0.0))


def test_checkouts_take_turns() -> None:
    order: list[str] = []

    def measure(checkout: Checkout, number: int) -> str:
        order.append(f"{checkout.name} {number}")
        return order[-1]

    pairs = list(compared.in_turn(2, (NEW, OLD), measure))
    assert order == ["new 1", "old 1", "new 2", "old 2"]
    assert pairs == [("new 1", "old 1"), ("new 2", "old 2")]


def test_medians_and_ratios_of_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    figures = Figures()
    rounds = [
        (_measured(0.1), _measured(0.4)),
        (_measured(0.3), _measured(0.6)),
        (_measured(0.2), _measured(0.2)),
    ]
    compared.tell_one(figures, 2, "old", rounds[1][1])
    compared.tell(figures, rounds)
    name = "fleet-load, 100 replicas, worker"
    said = {figure.name.removeprefix(name): figure.value for figure in figures.rows}
    assert capsys.readouterr().out.count("\n") == len(said)
    assert said[", round 2, old: kept up with"] == 50
    assert said[", round 2, old: CPU a batch"] == 600
    assert said[", round 2, old: replicas per core"] == pytest.approx(83.333)
    assert said[", median, new: CPU a batch"] == 200
    assert said[", median, old: CPU a batch"] == 400
    assert said[", median, new: replicas per core"] == 250
    assert said[", median, old: replicas per core"] == 125
    assert said[": old to new, CPU a batch, of the medians"] == 2
    assert said[": old to new, the least of a round"] == 1
    assert said[": old to new, the most of a round"] == 4


def test_a_directory_without_an_interpreter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="make venv"):
        Checkout.at("old", tmp_path)
