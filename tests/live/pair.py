"""A prefill and a decode engine: what came by transfer, as the engines count it and as the tables say.

They share a folder, by vLLM's ExampleConnector. A prompt goes to the prefill engine, which makes one token,
and then to the decode engine, which loads what it lacks; those of one conversation go to the latter alone.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.local.processes.ports import KeptPorts
from schemas.discovery_settings import Role
from tests.live.comparison import WAIT_SECONDS, asked, settled
from tests.live.conversations import Conversations
from tests.live.engine import LiveEngine, Shared
from tests.live.installation import engine_python
from tests.live.shown import say, show
from tests.live.whole_kvlens import WholeKvlens

COUNTED_SINCE = (0, 32)
"""The release from which on vLLM counts where prompts came from."""
CONVERSATIONS = 6
ALONE = 1
"""Of these, whose prompts only the decode engine sees."""
TURNS = 20
MOST_APART = 0.05
"""Of the tokens that came: by how much the tables may be wrong, as the advice would say."""
ROLES: tuple[Role, ...] = ("prefill", "decode")
_SCRAPED = "SELECT DISTINCT replica FROM {0}.engine_counters"
_BALANCE = """
    SELECT replica, sum(computed_tokens) AS computed, sum(transferred_tokens) AS transferred,
        sum(reloaded_tokens) AS reloaded, sum(generated_tokens) AS generated, sum(claimed_tokens) AS claimed
    FROM {{0}}.replica_balance_series(from = '{}', to = '{}', step = 60)
    GROUP BY replica"""


class Balance(NamedTuple):
    """Tokens of one engine, by its own counters."""

    computed: int
    transferred: int
    reloaded: int
    generated: int


class PairRun:
    """Both engines and a whole kvlens."""

    def __init__(self, version: str, directory: Path, stack: ExitStack) -> None:
        python, ports = engine_python(version), KeptPorts()
        stack.callback(ports.release)
        self._began = time.time()
        self._version = version
        folder = directory / "shared"
        folder.mkdir()
        self._engines = {
            role: LiveEngine(f"{role}-0", python, directory, ports.any, Shared(role, folder))
            for role in ROLES
        }
        self._kvlens = stack.enter_context(
            WholeKvlens(directory, ports.any, [engine.replica for engine in self._engines.values()])
        )
        for engine in self._engines.values():
            stack.callback(engine.kill)
            engine.start()
        self._kvlens.wait_ready()
        self._wait_counted()

    def right(self) -> bool:
        """Talk to both; whether engines and kvlens say the same."""
        say(f"vLLM {self._version}: a prefill and a decode engine, ready in {self._seconds()} s")
        conversations = Conversations(seed=11, count=CONVERSATIONS, again=0.0)
        for _ in range(TURNS):
            prompts = conversations.prompts()
            self._engines["prefill"].generate(prompts[ALONE:], tokens=1)
            conversations.answered(self._engines["decode"].generate(prompts))
        known = asked(self._engines.values(), {})
        told = settled(self._kvlens, known)
        say(f"  {TURNS * CONVERSATIONS} prompts ({self._seconds()} s)")
        show(known.facts, told)
        balanced = self._balanced()
        findings = self._kvlens.recounted()
        rows = sum(findings.compared.values())
        say(f"  recount of the log: {rows:,} rows compared, {sum(findings.differing.values())} differ")
        return told == known.facts and balanced and findings.equal

    def _balanced(self) -> bool:
        """Show what the engines counted beside what the tables have of it; whether they agree."""
        accounts = {engine.name: engine.account() for engine in self._engines.values()}
        counted = {name: _counted(account["counters"]) for name, account in accounts.items()}
        rows, right = self._settled(counted), True
        say("    " + "".join(f"{column:>12}" for column in ("engine", "", *Balance._fields, "came")))
        for name, balance in counted.items():
            row, moved = rows.get(name, {}), accounts[name]["moved"]
            said, claimed = _said(row), int(row.get("claimed") or 0)
            for who, figures, came in (("counters", balance, moved), ("rows", said, claimed)):
                cells = "".join(f"{figure:>12,}" for figure in (*figures, came))
                say(f"    {name:>12}{who:>12}{cells}")
            right = right and said == balance
        decode = self._engines["decode"].name
        claimed, moved = int(rows.get(decode, {}).get("claimed") or 0), accounts[decode]["moved"]
        if not moved or not counted[decode].computed:
            say("  too little happened: the decode engine loaded nothing, or computed nothing")
            return False
        apart = abs(claimed - moved) / moved
        say(f"  the decode engine loaded {moved:,} tokens, the tables say {claimed:,}: {apart:.1%} apart")
        return right and apart <= MOST_APART

    def _settled(self, counted: dict[str, Balance]) -> dict[str, dict[str, Any]]:
        """Return the rows as soon as they are what the engines counted, else after a time."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            rows = self._rows()
            right = all(_said(rows.get(name, {})) == balance for name, balance in counted.items())
            if right or time.monotonic() > deadline:
                return rows
            time.sleep(0.5)

    def _wait_counted(self) -> None:
        """Return when both engines were scraped: their counters are still at 0 then."""
        deadline = time.monotonic() + WAIT_SECONDS
        while len(self._kvlens.rows(_SCRAPED)) < len(self._engines) and time.monotonic() < deadline:
            time.sleep(0.5)

    def _rows(self) -> dict[str, dict[str, Any]]:
        window = (_utc(self._began - 60), _utc(time.time() + 600))
        return {row["replica"]: row for row in self._kvlens.rows(_BALANCE.format(*window))}

    def _seconds(self) -> int:
        return round(time.time() - self._began)


def _counted(counters: dict[str, float]) -> Balance:
    """Return what vLLM's own page says: computed when a request is answered, the rest when it is admitted."""

    def cached(*sources: str) -> int:
        return int(sum(counters.get(f"prompt_tokens_cached_by_source/{each}", 0) for each in sources))

    return Balance(
        int(counters.get("prompt_tokens_by_source/local_compute", 0)),
        cached("p2p", "external_unspecified"),
        cached("host", "disk"),
        int(counters.get("generation_tokens", 0)),
    )


def _said(row: dict[str, Any]) -> Balance:
    return Balance(*(int(row.get(figure) or 0) for figure in Balance._fields))


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
