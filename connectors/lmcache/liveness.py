"""Which servers are still there, judging by what was heard of them and when. No IO.

An idle server reports nothing. Its heartbeats go to its coordinator alone, so they are known only if that is
this connector. Other servers can only be judged by their silence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from connectors.lmcache.backlog import ALL
from connectors.lmcache.decoder import Place
from connectors.process.absence import Absence
from schemas.reasons import ClosedReason

HEARTBEAT_SECONDS = 60.0
"""A server that sends heartbeats, every five seconds unless set otherwise, is gone after this silence. Its
own coordinator waits for 30 seconds."""
LEAVING_SECONDS = 15.0
"""A server may report so long after it said that it leaves: its last second comes after that."""
MADE_UP_SECONDS = 600.0
"""Longest silence of a server that made up its id: that dies with the process, and the next has another."""

_MADE_UP = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def made_up(server: str) -> bool:
    """Return whether an id is a random UUID, as servers make up that were given none."""
    return _MADE_UP.fullmatch(server) is not None


@dataclass(slots=True)
class _Server:
    heard_at: float
    incarnation: int = 0
    posts: bool = False
    """Whether its last report came over HTTP, so that nothing of it is unread."""
    beats: bool = False
    """Whether the present process sends heartbeats."""
    left: bool = False
    """Whether it said that it leaves."""
    judged: bool = False
    """Whether its silence was believed."""

    def silent(self, now: float, read_to: float) -> float:
        """Return for how long it has said nothing, as far as all that it reported has been read."""
        return (now if self.posts else min(now, read_to)) - self.heard_at


class Liveness:
    """What was heard of servers. Times are seconds since the epoch, of the connector's clock."""

    def __init__(
        self, silent_seconds: float, doubted: Callable[[int, int], None] = lambda known, found: None
    ) -> None:
        """`silent_seconds` is how long a server without heartbeats may be silent.

        `doubted` is called when most servers fall silent together, with how many were heard and still are.
        """
        self._silent_seconds = silent_seconds
        self._absence = Absence(doubted)
        self._doubted: set[str] = set()
        self._servers: dict[str, _Server] = {}

    def __len__(self) -> int:
        return len(self._servers)

    def reported(self, server: str, incarnation: int, at: float, *, posted: bool = False) -> None:
        """Note that a server sent a batch of one of its sessions at `at`, over HTTP if `posted`."""
        known = self._heard(server, at)
        known.posts = posted
        if known.incarnation and incarnation > known.incarnation:
            # That may have been the process before; a new one registers once its heartbeat is refused.
            known.beats = known.left = False
        known.incarnation = max(known.incarnation, incarnation)

    def beat(self, server: str, at: float) -> None:
        """Note that a server registered, or sent a heartbeat."""
        known = self._heard(server, at)
        known.beats, known.left = True, False

    def leaves(self, server: str, at: float) -> None:
        """Note that a server says it leaves."""
        if server in self._servers:
            self._heard(server, at).left = True

    def beats(self, server: str) -> bool:
        """Return whether a server is registered."""
        known = self._servers.get(server)
        return known is not None and known.beats and not known.left

    def posts(self, server: str) -> bool:
        """Return whether the last report of a server came over HTTP."""
        known = self._servers.get(server)
        return known is not None and known.posts

    def missed(self, seconds: float) -> None:
        """Note that nobody looked for so long: the process stood, took no reports, or its clock jumped.

        More than HEARTBEAT_SECONDS are silence of nobody.
        """
        if seconds > HEARTBEAT_SECONDS:
            for known in self._servers.values():
                known.heard_at += seconds

    def look(self, now: float, read_to: float = ALL) -> None:
        """Judge who no longer sends heartbeats: most of several at once may only be cut off from us.

        What was reported over Kafka before `read_to` has been read. Where the clock was set back, silence
        counts from then.
        """
        for known in self._servers.values():
            known.heard_at = min(known.heard_at, now)
        beating = {
            server: known
            for server, known in self._servers.items()
            if known.beats and not known.left and not known.judged
        }
        silent = {s for s, known in beating.items() if known.silent(now, read_to) >= HEARTBEAT_SECONDS}
        heard = len(beating) - len(silent)
        if self._absence.believed(len(beating) if len(beating) > 1 else heard, heard, now):
            self._doubted = set()
            for server in silent:
                beating[server].judged = True
        else:
            self._doubted = silent

    def gone(self, place: Place, now: float, read_to: float = ALL) -> ClosedReason | None:
        """Return why a place ends, None if it does not. `read_to` is as for `look`.

        Memory ends with its process. Storage may be there again when a server of the same id is. What several
        servers share stays.
        """
        if not place.instance:
            return None
        known = self._servers.get(place.instance)
        if known is None:
            return "silent"
        silent = known.silent(now, read_to)
        if not place.backend or made_up(place.instance):
            if known.left and silent >= LEAVING_SECONDS:
                return "removed"
            if known.beats and silent >= HEARTBEAT_SECONDS and place.instance not in self._doubted:
                return "silent"
        longest = MADE_UP_SECONDS if made_up(place.instance) else self._silent_seconds
        return "silent" if silent >= min(longest, self._silent_seconds) else None

    def keep(self, servers: Collection[str], now: float) -> None:
        """Forget all but these servers, and those that were heard lately."""
        self._servers = {
            server: known
            for server, known in self._servers.items()
            if server in servers or now - known.heard_at < HEARTBEAT_SECONDS
        }

    def _heard(self, server: str, at: float) -> _Server:
        known = self._servers.setdefault(server, _Server(at))
        if at > known.heard_at:
            known.heard_at, known.judged = at, False
        return known
