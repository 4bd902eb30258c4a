"""The parts of `fleet-load`: connectors, workers with either agent, workers with both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from checkout import THIS, Checkout
from figures import Figures

from fleet_load import compared, connector, worker
from fleet_load.installation import Installation
from fleet_load.measured import Measured

PARTS = ("connector", "replica", "fleet", "worker")
SOURCES = (100, 300, 1_000)


def run(
    figures: Figures,
    bootstrap: str,
    store_url: str,
    *,
    sources: Sequence[int],
    parts: Sequence[str],
    workers: Sequence[str],
    connectors: Sequence[int],
) -> None:
    """Measure each part with each number of replicas and of processes; about a minute each."""
    for part in parts:
        for replicas in sources:
            for processes in _processes(part, workers, connectors):
                prefix = f"bench-load-{part}-{replicas}-{processes}"
                installation = Installation(THIS, bootstrap, store_url, prefix)
                _measured(installation, part, replicas, processes).tell(figures)


def against(
    figures: Figures,
    bootstrap: str,
    store_url: str,
    directory: Path,
    *,
    sources: Sequence[int],
    parts: Sequence[str],
    rounds: int,
) -> None:
    """Measure this checkout and another one in turn, part by part; two minutes a round."""
    checkouts = (THIS, Checkout.at("old", directory))
    for part in parts:
        for replicas in sources:

            def measure(
                checkout: Checkout, number: int, part: str = part, replicas: int = replicas
            ) -> Measured:
                prefix = f"bench-load-{part}-{replicas}-{checkout.name}-{number}"
                installation = Installation(checkout, bootstrap, store_url, prefix)
                measured = _measured(installation, part, replicas, "1")
                compared.tell_one(figures, number, checkout.name, measured)
                return measured

            compared.tell(figures, [(new, old) for new, old in compared.in_turn(rounds, checkouts, measure)])


def _processes(part: str, workers: Sequence[str], connectors: Sequence[int]) -> Sequence[str]:
    """Return in how many processes a part is measured; a single agent is one."""
    if part == "worker":
        return workers
    return [str(count) for count in connectors] if part == "connector" else ["1"]


def _measured(installation: Installation, part: str, replicas: int, processes: str) -> Measured:
    if part == "connector":
        return connector.measured(installation, replicas, int(processes))
    return worker.measured(installation, replicas, part, processes)
