"""The parts of `fleet-load`: a connector, a worker with either agent, a worker with both."""

from __future__ import annotations

from collections.abc import Sequence

from figures import Figures

from fleet_load import connector, worker

PARTS = ("connector", "replica", "fleet", "worker")
SOURCES = (100, 300, 1_000)


def run(
    figures: Figures, bootstrap: str, store_url: str, *, sources: Sequence[int], parts: Sequence[str]
) -> None:
    """Measure each part with each number of replicas; about a minute each."""
    for part in parts:
        for replicas in sources:
            if part == "connector":
                measured = connector.measured(bootstrap, replicas)
            else:
                measured = worker.measured(bootstrap, store_url, replicas, part)
            measured.tell(figures)
