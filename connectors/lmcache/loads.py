"""Objects that are in a server's memory only for a request that reads them from storage. No IO.

With LMCache's `--l2-prefetch-policy default` nothing that is loaded from storage is retained: the server
reports that it was read there, stored in memory and, once the request has it, deleted from memory (0.5.6:
`DefaultPrefetchPolicy.plan_l1_retention`, `L1Manager.finish_read`). Memory is no cache there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

Object = tuple[str, int, bytes]
"""Model, group and packed hash."""

MOST_OBJECTS: Final = 1 << 16
"""Of a server, at most: those read but not stored yet, and as many again that are in memory."""
LONG: Final = 600.0
"""Seconds: twice as long as a request may hold what it reads, by default (`read_ttl_seconds`)."""
SOON: Final = 60.0
"""Seconds by the server's clock between the read of an object and its store, at most."""


class Loads:
    """What one session of a server loads, by its batches in their order."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.seq = 0
        """Of the last batch that was taken."""
        self._read: OrderedDict[Object, float] = OrderedDict()
        self._loaded: OrderedDict[Object, float] = OrderedDict()
        """In memory since then."""

    def read(self, one: Object, at: float) -> None:
        """Note that an object was read from storage for a request, at a time of the server's clock."""
        _note(self._read, one, at)

    def stored(self, one: Object, at: float) -> bool:
        """Note a store in memory; return whether the object is there only because it was loaded."""
        read_at = self._read.pop(one, None)
        if read_at is None or at - read_at > SOON:
            self._loaded.pop(one, None)
            return False
        _note(self._loaded, one, at)
        return True

    def deleted(self, one: Object) -> bool:
        """Note a deletion from memory; return whether the object was there only for a request."""
        self._read.pop(one, None)
        return self._loaded.pop(one, None) is not None

    def stay(self, at: float) -> bool:
        """Return whether something loaded is in memory for longer than any request may hold it."""
        return bool(self._loaded) and at - next(iter(self._loaded.values())) > LONG


def _note(times: OrderedDict[Object, float], one: Object, at: float) -> None:
    """Note the newest time of an object; the oldest of too many is forgotten."""
    times[one] = at
    times.move_to_end(one)
    if len(times) > MOST_OBJECTS:
        times.popitem(last=False)


class LoadsOfServers:
    """What each server loads."""

    def __init__(self) -> None:
        self._by_server: dict[str, Loads] = {}

    def of(self, server: str, incarnation: int, seq: int) -> Loads | None:
        """Return the loads of the session that a server's next batch is of; None if that came before."""
        known = self._by_server.get(server)
        if known is None or incarnation > known.incarnation:
            known = self._by_server[server] = Loads(incarnation)
        if (incarnation, seq) <= (known.incarnation, known.seq):
            return None
        known.seq = seq
        return known

    def keep(self, servers: Collection[str]) -> None:
        """Forget all but these servers."""
        self._by_server = {server: one for server, one in self._by_server.items() if server in servers}
