"""Two checkouts in turn, under the same load: each round has one measurement of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import TypeVar

from checkout import Checkout
from figures import Figures

from fleet_load.measured import Measured

_Taken = TypeVar("_Taken")


def in_turn(
    rounds: int, checkouts: Sequence[Checkout], measure: Callable[[Checkout, int], _Taken]
) -> Iterator[tuple[_Taken, ...]]:
    """Yield what was measured of each checkout in each round, one after the other: a, b, a, b."""
    for number in range(1, rounds + 1):
        yield tuple(measure(checkout, number) for checkout in checkouts)


def tell_one(figures: Figures, number: int, which: str, measured: Measured) -> None:
    """Say what one of them took in a round."""
    said = f"{measured.name}, round {number}, {which}"
    figures.add(f"{said}: kept up with", measured.share * 100, "% of the load")
    figures.add(f"{said}: waited for a core", measured.spent.waited * 100, "% of the time")
    figures.add(f"{said}: lag in the end", measured.lag, "s")
    figures.add(f"{said}: CPU a batch", measured.cpu_a_batch * 1e6, "µs")
    figures.add(f"{said}: replicas per core", measured.replicas_a_core, "")


def tell(figures: Figures, rounds: Sequence[tuple[Measured, Measured]]) -> None:
    """Say the medians of the new and the old one, and how they compare."""
    name = rounds[0][0].name
    costs = [[measured.cpu_a_batch for measured in checkout] for checkout in zip(*rounds, strict=True)]
    carried = [[measured.replicas_a_core for measured in checkout] for checkout in zip(*rounds, strict=True)]
    for which, cost, replicas in zip(("new", "old"), costs, carried, strict=True):
        figures.add(f"{name}, median, {which}: CPU a batch", median(cost) * 1e6, "µs")
        figures.add(f"{name}, median, {which}: replicas per core", median(replicas), "")
    ratios = [old.cpu_a_batch / new.cpu_a_batch for new, old in rounds]
    figures.add(f"{name}: old to new, CPU a batch, of the medians", median(costs[1]) / median(costs[0]), "x")
    figures.add(f"{name}: old to new, the least of a round", min(ratios), "x")
    figures.add(f"{name}: old to new, the most of a round", max(ratios), "x")
