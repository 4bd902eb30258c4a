"""A campaign from start to end: traffic, faults by plan, `kvlens verify` beside them, and the judgement."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import zmq
from clickhouse_connect.driver.exceptions import ClickHouseError

from pipeline.local.processes.ports import KeptPorts
from tests.system.faults.campaign import report
from tests.system.faults.campaign.engines.engine import TROUBLES, TroubledEngine
from tests.system.faults.campaign.engines.traffic import Traffic
from tests.system.faults.campaign.judgement.log import read_incarnations
from tests.system.faults.campaign.judgement.tables import Tables
from tests.system.faults.campaign.judgement.truth import judge
from tests.system.faults.campaign.judgement.verifying import EQUAL, NAMES, Looker, look_until_equal
from tests.system.faults.campaign.kinds.catalogue import STRIKES
from tests.system.faults.campaign.plan import Episode
from tests.system.faults.campaign.site import Site
from tests.system.faults.campaign.surroundings.installation import Installation

HONEST_ENGINES = len(TROUBLES)
LIARS = 2
_PORTS = 3
_START_SECONDS = 240.0
_LIVE_SECONDS = 300.0
_SETTLE_SECONDS = 300.0
_SILENCE = 0.6
"""After this share of the episodes, the engine that falls silent for ever does so."""


def run(episodes: Sequence[Episode], seed: int, directory: Path, tell: Callable[[str], None]) -> None:
    """Run it; raises AssertionError and others when anything differs, hangs, or does not come back."""
    ports = KeptPorts()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    engines = _engines(context, ports)
    installation = Installation(directory, ports, [engine.replica for engine in engines])
    campaign = _Campaign(Site(installation, engines, engines[HONEST_ENGINES:], Traffic(engines, seed)), tell)
    try:
        campaign.run(episodes)
    except BaseException:
        tell(installation.tails())
        raise
    finally:
        campaign.report()
        installation.close()
        campaign.close_engines()
        context.destroy(0)
        ports.release()


def _engines(context: zmq.Context[zmq.Socket[bytes]], ports: KeptPorts) -> list[TroubledEngine]:
    layouts: tuple[Literal[2, 3], ...] = (2, 3)
    troubles = [*TROUBLES, *["none"] * LIARS]
    return [
        TroubledEngine(context, f"engine-{number:02}", trouble, layouts[number % 2], ports.any(_PORTS))
        for number, trouble in enumerate(troubles)
    ]


class _Campaign:
    def __init__(self, site: Site, tell: Callable[[str], None]) -> None:
        self._site = site
        self._tell = tell
        self._looker = Looker(site.installation.config)
        self._outcomes: list[report.Outcome] = []
        self._began = time.monotonic()

    def run(self, episodes: Sequence[Episode]) -> None:
        site = self._site
        site.installation.start()
        site.traffic.start()
        self._tell(f"live after {site.wait_live(_START_SECONDS):.1f} s")
        self._looker.start()
        for number, episode in enumerate(episodes):
            if number == int(len(episodes) * _SILENCE):
                site.traffic.do(self._fall_silent)
            self._strike(episode)
            self._looker.check()
        self._tell(f"live after {site.wait_live(_LIVE_SECONDS):.1f} s; the traffic ends")
        self._looker.look_no_more()
        site.traffic.stop()
        self._settle(site.engines)
        self._looker.stop()
        self._verify("at the end")
        self._judge()
        site.installation.stop_readers()
        self._verify("after the workers have stopped")

    def report(self) -> None:
        """Tell what was done, whatever became of it."""
        for line in report.table(self._outcomes):
            self._tell(line)
        done = sum(one.done for one in self._outcomes)
        looks = ", ".join(
            f"{count} {NAMES.get(code, code)}" for code, count in sorted(self._looker.counts.items())
        )
        self._tell(f"{done} faults done in {self._passed():.0f} s; verify beside them: {looks or 'no look'}")

    def close_engines(self) -> None:
        """Close their sockets, when nobody publishes any more."""
        self._site.traffic.abandon()
        for engine in self._site.engines:
            engine.end()

    def _strike(self, episode: Episode) -> None:
        site = self._site
        time.sleep(episode.pause_seconds)
        struck: list[tuple[int, str, str, float, float]] = []
        with ExitStack() as holding:
            for fault in episode.faults:
                began = time.monotonic()
                at = self._passed()
                what = holding.enter_context(STRIKES[fault.kind.name](site, random.Random(fault.seed)))
                time.sleep(fault.seconds)
                struck.append((fault.number, fault.kind.name, what, at, began))
        held = time.monotonic()
        live = site.wait_live(_LIVE_SECONDS) if episode.waits else None
        for number, kind, what, at, began in struck:
            outcome = report.Outcome(number, kind, what, at, held - began, live)
            self._outcomes.append(outcome)
            self._tell(report.line(outcome))

    def _fall_silent(self) -> None:
        for engine in self._site.engines:
            if engine.trouble == "silent end":
                engine.end()

    def _settle(self, engines: Sequence[TroubledEngine]) -> None:
        """Return when the tables know the last batch of every engine that lives, and who has ended."""
        query = (
            "SELECT replica, argMax(last_seq, incarnation), argMax(closed_reason, incarnation) "
            "FROM sources FINAL GROUP BY replica"
        )
        wanted = {one.name: "silent" if one.ended else one.lives[-1].last_seq for one in engines}
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            try:
                rows = self._site.installation.query(query)
            except (ClickHouseError, OSError):
                rows = []
            found = {
                name: reason if wanted[name] == "silent" else last
                for name, last, reason in rows
                if name in wanted
            }
            if found == wanted:
                return
            wrong = {n: (found.get(n), wanted[n]) for n in wanted if found.get(n) != wanted[n]}
            assert time.monotonic() < deadline, f"the tables did not settle: {wrong}"
            time.sleep(0.5)

    def _verify(self, when: str) -> None:
        looks = look_until_equal(self._site.installation.config)
        codes = ", ".join(NAMES.get(one.code, str(one.code)) for one in looks)
        self._tell(f"verify {when}: {codes}; {looks[-1].output.strip().splitlines()[-1]}")
        assert looks[-1].code == EQUAL, looks[-1].output

    def _judge(self) -> None:
        installation = self._site.installation
        told = read_incarnations(installation.settings.kafka)
        tables = Tables.read(installation.query)
        verdicts = [judge(engine, told[engine.name], tables) for engine in self._site.engines]
        self._tell(
            f"{len(verdicts)} engines, {sum(len(one.lives) for one in self._site.engines)} lives, "
            f"{sum(one.batches for one in verdicts)} batches in the tables as the engines published them, "
            f"{sum(one.lost for one in verdicts)} lost and said so, "
            f"{sum(one.unknown for one in verdicts)} incarnations with lies of replays"
        )

    def _passed(self) -> float:
        return time.monotonic() - self._began
