"""`make fuzz`: mutants of recorded payloads through all decoders, and on through record and worker.

Says how many took which way, and ends with 1 if the decoders disagreed, if the worker refused what became of
a payload, if compiled code touched memory that is not its own, or if another emitter on one socket with it
was harmed. A mutant depends on seed and number alone: `--first NUMBER --count 1` brings one back. Then four
lying engines before a whole kvlens, beside honest ones whose figures must be right at the end.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.local.processes.ports import KeptPorts
from tests.fuzz.decoders import MAX_PAYLOAD_BYTES, Decoders
from tests.fuzz.emitters import Emitters
from tests.fuzz.live import Attack, Outcome, Servers
from tests.fuzz.mutants import Mutants
from tests.fuzz.reports import Reports
from tests.fuzz.whole_way import WholeWay

PARTS = ("payloads", "live")
SHOWN_FAILURES = 10
SHOWN_BYTES = 60


@dataclass(slots=True)
class Report:
    """What became of some mutants."""

    mutants: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    """One text for each mutant that was not dealt with, with its number."""
    slowest_seconds: float = 0.0
    """Processor time that the reference decoder took for the slowest payload."""
    slowest: bytes = b""

    def add(self, other: Report) -> None:
        self.mutants += other.mutants
        self.outcomes += other.outcomes
        self.failures += other.failures
        if other.slowest_seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest = other.slowest_seconds, other.slowest

    def lines(self) -> list[str]:
        """Return the report for a terminal."""
        slowest = f"{len(self.slowest)} bytes, beginning with {self.slowest[:SHOWN_BYTES].hex()}"
        return [
            f"{self.mutants} mutants, {len(self.failures)} failures",
            *(f"  {count:9}  {outcome}" for outcome, count in sorted(self.outcomes.items())),
            f"slowest: {self.slowest_seconds * 1e3:.1f} ms of processor time for {slowest}",
            *self.failures[:SHOWN_FAILURES],
        ]


def fuzzed(seed: int, first: int, count: int, progress: Synchronized[int] | None = None) -> Report:
    """Take the mutants with numbers `first` to `first + count - 1`; `progress` gets each number."""
    mutants, decoders, way, failures = Mutants(seed), Decoders(), WholeWay(), []
    emitters, reports = Emitters(), Reports()
    for number in range(first, first + count):
        if progress is not None:
            progress.value = number
        rng = mutants.rng(number)
        payload = mutants.mutant(number, rng)[:MAX_PAYLOAD_BYTES]
        try:
            decoders.check(payload, rng)
            way.take(payload, rng)
            emitters.check(payload)
            reports.check(rng)
        except Exception:  # whatever it is, it is what this looks for
            last = traceback.format_exc().strip()
            failures.append(f"mutant {number} of seed {seed}: {payload[:SHOWN_BYTES].hex()}\n{last}")
            way, emitters = WholeWay(), Emitters()
    way.finish(mutants.rng(first + count))
    outcomes = decoders.outcomes + way.outcomes + reports.outcomes
    return Report(count, outcomes, failures, decoders.slowest_seconds, decoders.slowest)


def _child(seed: int, first: int, count: int, progress: Synchronized[int], reports: Connection) -> None:
    faulthandler.enable()
    reports.send(fuzzed(seed, first, count, progress))


def run(seed: int, first: int, count: int, jobs: int) -> Report:
    """Share the numbers out to processes; one that compiled code ended is a failure of its last number."""
    whole = Report()
    processes = multiprocessing.get_context("spawn")
    share = -(-count // jobs)
    started = []
    for begin in range(first, first + count, share):
        progress = processes.Value("q", begin)
        receiving, sending = processes.Pipe(duplex=False)
        arguments = (seed, begin, min(share, first + count - begin), progress, sending)
        process = processes.Process(target=_child, args=arguments)
        process.start()
        sending.close()
        started.append((process, progress, receiving))
    for process, progress, receiving in started:
        try:
            whole.add(receiving.recv())
        except EOFError:
            process.join()
            ended = f"mutant {progress.value} of seed {seed} ended the process with code {process.exitcode}"
            whole.add(Report(failures=[ended]))
        process.join()
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[], help=f"{', '.join(PARTS)}; default: both")
    parser.add_argument("--count", type=int, default=100_000, help="mutants; default: 100000")
    parser.add_argument("--frames", type=int, default=20_000, help="messages of liars; default: 20000")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--jobs", type=int, default=2, help="processes; default: 2")
    options = parser.parse_args()
    parts = options.parts or PARTS
    failed = False
    if "payloads" in parts:
        began = time.monotonic()
        report = run(options.seed, options.first, options.count, options.jobs)
        print(*report.lines(), f"{time.monotonic() - began:.0f} s", sep="\n", flush=True)
        failed = bool(report.failures)
    if "live" in parts:
        outcome = attacked(options.seed, options.frames)
        print(*outcome.lines(), sep="\n")
        failed = failed or not outcome.right
    sys.exit(failed)


def attacked(seed: int, frames: int) -> Outcome:
    """Attack a connector and a worker, with a broker and a store of their own."""
    with tempfile.TemporaryDirectory(prefix="kvlens-fuzz-") as name, ExitStack() as stack:
        directory, ports = Path(name), KeptPorts()
        stack.callback(ports.release)
        broker = EmbeddedBroker(directory / "broker", ports.any())
        store = EmbeddedStore(directory / "store", ports.any())
        for server in (broker, store):
            server.start()
            stack.callback(server.stop)
        attack = Attack(Servers(broker.bootstrap_servers, store.url, directory, ports.any), seed)
        stack.callback(attack.close)
        return attack.run(frames)


if __name__ == "__main__":
    main()
