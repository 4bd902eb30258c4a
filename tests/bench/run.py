"""`make bench`: measures on this machine, prints figures with units, writes build/bench.json."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import agent
import blind
import catch_up
import connector
import first_look
import fleet
import freshness
import idle
import index
import memory
import panels
import scale
import speed
import stopping
import verify
from figures import Figures, machine
from fleet_load import catch_up as fleet_catch_up
from fleet_load import freshness as fleet_freshness
from fleet_load import run as fleet_load
from fleet_load import scale_out
from fleet_load.installation import agents_of

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.local.processes.ports import free_port

ASKED_FOR = ("index", "blind", "scale", "fleet-load", "fleet-catch-up", "scale-out", "first-look", "stopping")
"""Parts that take long, and much memory; `scale-out` only computes, from figures of `fleet-load`.
`first-look` ends with `stopping`."""
PARTS = ("connector", "catch-up", "idle", "agent", "fleet", "memory", "verify", "panels", "freshness")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = ", ".join((*PARTS, *ASKED_FOR))
    parser.add_argument("parts", nargs="*", default=[], help=f"{names}; default: all but the last eight")
    parser.add_argument("--engines", type=int, default=1_000, help="of `scale`; default: 1,000")
    parser.add_argument("--blocks", type=int, default=50_000, help="of each of them; default: 50,000")
    parser.add_argument(
        "--sources",
        nargs="+",
        type=int,
        default=[],
        help="replicas of `fleet-load`, 100 300 1000, and of `fleet-catch-up`, 250 1000",
    )
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=fleet_load.PARTS,
        default=fleet_load.PARTS,
        dest="loaded",
        help="of `fleet-load`: what is under load; default: all of them, one after the other",
    )
    parser.add_argument(
        "--workers",
        nargs="+",
        default=["1"],
        type=_workers,
        help="of `fleet-load` and `fleet-catch-up`: sharing the partitions, or `apart`: one with each agent",
    )
    parser.add_argument(
        "--connectors", nargs="+", type=int, default=[1], help="of `fleet-load`: that share the replicas"
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="DIR",
        help="of `fleet-load`: another checkout, with its .venv, that is measured in turn with this one",
    )
    parser.add_argument("--rounds", type=int, default=3, help="of `--against`; default: 3")
    parser.add_argument(
        "--lengths",
        nargs="+",
        type=int,
        default=fleet_catch_up.LENGTHS,
        help="of the backlogs of `fleet-catch-up`, seconds; default: 60 120 240",
    )
    parser.add_argument(
        "--replicas", type=int, default=200, help="of `freshness`, beside the demo; default: 200"
    )
    parser.add_argument(
        "--per-core",
        nargs=2,
        type=int,
        default=(500, 1_000),
        metavar=("WORKER", "CONNECTOR"),
        help="of `scale-out`: replicas that a core carries; default: 500 1000",
    )
    parser.add_argument(
        "--clone",
        type=Path,
        metavar="DIR",
        help="of `first-look`: another repository, whose last commit is measured",
    )
    arguments = parser.parse_args()
    parts = arguments.parts or PARTS
    print(f"kvlens bench on {machine()}", flush=True)
    figures = Figures()
    if "first-look" in parts:
        first_look.run(figures, arguments.clone)
    if {"first-look", "stopping"} & {*parts}:
        stopping.run(figures)
    if set(parts) - {"first-look", "stopping"}:
        _beside_kafka_and_clickhouse(figures, parts, arguments)
    if "freshness" in parts:
        freshness.run(figures)
    figures.write(Path("build/bench.json"))
    print("written to build/bench.json")


def _beside_kafka_and_clickhouse(
    figures: Figures, parts: Sequence[str], arguments: argparse.Namespace
) -> None:
    """Measure the parts that share an embedded broker and store."""
    with tempfile.TemporaryDirectory(prefix="kvlens-bench-") as directory:
        broker = EmbeddedBroker(Path(directory) / "broker", free_port())
        store = EmbeddedStore(Path(directory) / "store", free_port())
        broker.start()
        store.start()
        try:
            speed.run(figures)
            if "connector" in parts:
                connector.run(figures, broker.bootstrap_servers)
            if "catch-up" in parts:
                catch_up.run(figures, broker.bootstrap_servers)
            if "idle" in parts:
                idle.run(figures, broker.bootstrap_servers)
            if "agent" in parts:
                agent.run(figures, broker.bootstrap_servers, store.url)
            if "fleet" in parts:
                fleet.run(figures, broker.bootstrap_servers, store.url)
            if "memory" in parts:
                memory.run(figures)
            if "verify" in parts:
                verify.run(figures, broker.bootstrap_servers, store.url)
            if "index" in parts:
                index.run(figures, broker.bootstrap_servers)
            if "blind" in parts:
                blind.run(figures, broker.bootstrap_servers)
            if "scale" in parts:
                engines, blocks = arguments.engines, arguments.blocks
                scale.run(figures, broker, store.url, engines=engines, blocks=blocks)
            if "fleet-load" in parts:
                _fleet_load(figures, broker.bootstrap_servers, store.url, arguments)
            if "fleet-catch-up" in parts:
                fleet_catch_up.run(
                    figures,
                    broker.bootstrap_servers,
                    store.url,
                    sources=arguments.sources or fleet_catch_up.SOURCES,
                    workers=arguments.workers,
                    lengths=arguments.lengths,
                )
            if "scale-out" in parts:
                of_worker, of_connector = arguments.per_core
                scale_out.run(figures, worker=of_worker, connector=of_connector)
            if "freshness" in parts:
                replicas = arguments.replicas
                fleet_freshness.run(figures, broker.bootstrap_servers, store.url, replicas=replicas)
            if "panels" in parts:
                panels.run(figures, store.url)
            speed.run(figures)
        finally:
            store.stop()
            broker.stop()


def _workers(said: str) -> str:
    """Return what `--workers` means if it means anything; argparse tells of the ValueError."""
    if not agents_of(said):
        raise ValueError(said)
    return said


def _fleet_load(figures: Figures, bootstrap: str, store_url: str, arguments: argparse.Namespace) -> None:
    sources, parts = arguments.sources or fleet_load.SOURCES, arguments.loaded
    if arguments.against:
        other, rounds = arguments.against, arguments.rounds
        fleet_load.against(figures, bootstrap, store_url, other, sources=sources, parts=parts, rounds=rounds)
        return
    workers, connectors = arguments.workers, arguments.connectors
    fleet_load.run(
        figures,
        bootstrap,
        store_url,
        sources=sources,
        parts=parts,
        workers=workers,
        connectors=connectors,
    )


if __name__ == "__main__":
    main()
