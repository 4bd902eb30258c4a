"""`make bench`: measures on this machine, prints figures with units, writes build/bench.json."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import agent
import catch_up
import connector
import fleet
import freshness
import idle
import memory
import panels
import scale
import speed
import verify
from figures import Figures, machine
from fleet_load import run as fleet_load

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.local.processes.ports import free_port

ASKED_FOR = ("scale", "fleet-load")
"""Parts that take long, and much memory."""
PARTS = ("connector", "catch-up", "idle", "agent", "fleet", "memory", "verify", "panels", "freshness")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = ", ".join((*PARTS, *ASKED_FOR))
    parser.add_argument("parts", nargs="*", default=[], help=f"{names}; default: all but the last two")
    parser.add_argument("--engines", type=int, default=1_000, help="of `scale`; default: 1,000")
    parser.add_argument("--blocks", type=int, default=50_000, help="of each of them; default: 50,000")
    parser.add_argument(
        "--sources", nargs="+", type=int, default=fleet_load.SOURCES, help="of `fleet-load`: 100 300 1000"
    )
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=fleet_load.PARTS,
        default=fleet_load.PARTS,
        dest="loaded",
        help="of `fleet-load`: what is under load; default: all of them, one after the other",
    )
    arguments = parser.parse_args()
    parts = arguments.parts or PARTS
    print(f"kvlens bench on {machine()}", flush=True)
    figures = Figures()
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
            if "scale" in parts:
                engines, blocks = arguments.engines, arguments.blocks
                scale.run(figures, broker, store.url, engines=engines, blocks=blocks)
            if "fleet-load" in parts:
                sources, loaded = arguments.sources, arguments.loaded
                fleet_load.run(figures, broker.bootstrap_servers, store.url, sources=sources, parts=loaded)
            if "panels" in parts:
                panels.run(figures, store.url)
            speed.run(figures)
        finally:
            store.stop()
            broker.stop()
    if "freshness" in parts:
        freshness.run(figures)
    figures.write(Path("build/bench.json"))
    print("written to build/bench.json")


if __name__ == "__main__":
    main()
