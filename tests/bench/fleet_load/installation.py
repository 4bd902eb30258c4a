"""Topics and tables of one measurement, made by the checkout that is measured, and its workers."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import IO

from checkout import Checkout
from connector import metric
from processes import launched

from pipeline.local.processes.ports import free_port

APART = "apart"
"""One worker with each agent, in place of a number of workers with both."""
TOPICS = {"replica": "events", "fleet": "residency"}
"""What each agent reads."""
_LINES_SHOWN = 30


def agents_of(workers: str) -> list[str]:
    """Return the agents of each worker: `2` is twice `both`, `apart` is one of each."""
    return [*TOPICS] if workers == APART else ["both"] * int(workers)


@dataclass(frozen=True)
class Worker:
    """A process of `kvlens work`, and the port of its pages."""

    process: subprocess.Popen[bytes]
    port: int
    log: IO[bytes]

    def check(self) -> None:
        """Raise SystemExit, with what it said last, when it has ended."""
        if (code := self.process.poll()) is not None:
            self.log.seek(0)
            last = b"\n".join(self.log.read().splitlines()[-_LINES_SHOWN:]).decode(errors="replace")
            raise SystemExit(f"a worker ended with {code}:\n{last}")

    @property
    def owns(self) -> bool:
        """Whether it has partitions."""
        try:
            return metric(self.port, "kvlens_worker_partitions") > 0
        except OSError:
            return False

    @property
    def at_work(self) -> bool:
        """Whether it starts, or has records to apply."""
        return not self.owns or metric(self.port, "kvlens_worker_lag") > 0


@dataclass(frozen=True)
class Installation:
    """Names of its own on a broker and a store that others use, too."""

    checkout: Checkout
    bootstrap: str
    store_url: str
    prefix: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables that its processes get besides."""

    def prepare(self) -> None:
        """Make topics and tables."""
        self.checkout.run(["topics", "apply"], self.environment)
        self.checkout.run(["migrate"], self.environment)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "KVLENS_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap,
            "KVLENS_KAFKA__TOPIC_PREFIX": self.prefix,
            "KVLENS_KAFKA__GROUP": self.prefix,
            "KVLENS_CLICKHOUSE__URL": self.store_url,
            "KVLENS_CLICKHOUSE__DATABASE": self.database,
            **self.settings,
        }

    @property
    def database(self) -> str:
        return self.prefix.replace("-", "_")

    def topic(self, name: str) -> str:
        return f"{self.prefix}.{name}.v1"

    def groups(self, agents: Sequence[str]) -> list[tuple[str, str]]:
        """Return topic and consumer group of the agents."""
        return [(self.topic(TOPICS[agent]), f"{self.prefix}.{agent}") for agent in agents]

    @contextmanager
    def workers(self, agents: Sequence[str]) -> Iterator[list[Worker]]:
        """Run a worker with each of these agents while the block lasts."""
        with ExitStack() as stack:
            workers = []
            for agent in agents:
                port = free_port()
                environment = {
                    **self.environment,
                    "KVLENS_WORKER__AGENTS": agent,
                    "KVLENS_WORKER__METRICS_PORT": str(port),
                }
                log = stack.enter_context(tempfile.TemporaryFile())
                process = stack.enter_context(launched(["work"], environment, self.checkout, log))
                workers.append(Worker(process, port, log))
            yield workers
