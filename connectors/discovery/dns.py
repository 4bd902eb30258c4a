"""Replicas behind a host name: each of its addresses is one."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from connectors.discovery.presence import AbsenceTelemetry, Presence
from connectors.discovery.static import list_sources
from connectors.process.addresses import bracketed
from connectors.sources import Source
from schemas.discovery_settings import DnsName, Replica

RESOLVE_SECONDS = 10.0
"""Between two resolutions of a name."""
ANSWER_SECONDS = 5.0
"""Longest time for resolving a name; if it fails, the last addresses stay."""
MISSES = 3
"""Answers in a row that lack an address before its replica is removed."""
_FAMILIES = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}


class DnsTelemetry(AbsenceTelemetry, Protocol):
    """Where resolutions are counted."""

    def name_unresolved(self, name: str, reason: str) -> None: ...


class NameUnresolved(Exception):
    """A name could not be resolved."""


Resolve = Callable[[str, str], Awaitable[Sequence[str]]]
"""(name, family) -> addresses; raises NameUnresolved."""


class Addresses:
    """The addresses of a name. One that answers lack stays until `misses` of them in a row do."""

    def __init__(self, misses: int) -> None:
        self._misses = misses
        self._missed: dict[str, int] = {}

    def answered(self, addresses: Iterable[str]) -> list[str]:
        """Apply an answer; return the addresses that count now, in a stable order."""
        found = set(addresses)
        missed = {address: times + 1 for address, times in self._missed.items() if address not in found}
        kept = {address: times for address, times in missed.items() if times < self._misses}
        self._missed = {**dict.fromkeys(found, 0), **kept}
        return sorted(self._missed)


def named_sources(name: DnsName, addresses: Sequence[str]) -> list[Source]:
    """Return the sources of the replicas at these addresses; the id is `address:port`, as in the endpoint."""
    replicas = []
    for address in addresses:
        host = bracketed(address)
        replicas.append(
            Replica(
                id=f"{host}:{name.port}",
                model=name.model,
                endpoint=f"tcp://{host}:{name.port}",
                replay_endpoint=None if name.replay_port is None else f"tcp://{host}:{name.replay_port}",
                metrics_url=None
                if name.metrics_port is None
                else f"http://{host}:{name.metrics_port}/metrics",
                dp_ranks=name.dp_ranks,
                tenant=name.tenant,
                hash_scheme=name.hash_scheme,
                topic=name.topic,
                role=name.role,
            )
        )
    return list_sources(replicas)


async def resolve(name: str, family: str) -> list[str]:
    """Ask the system's resolver; raises NameUnresolved."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(name, None, family=_FAMILIES[family], type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise NameUnresolved(reason) from error
    # A link-local address keeps its zone.
    return [str(address[0]) for *_, address in found]


class NameWatch:
    """The replicas behind a name, as an origin: it is resolved again and again.

    An answer that does not come in time is waited for in the next round, so that a resolver that hangs
    occupies one thread and not one for each round.
    """

    sharded = True

    def __init__(
        self,
        number: int,
        name: DnsName,
        telemetry: DnsTelemetry,
        resolve: Resolve = resolve,
    ) -> None:
        """`number` counts the names of the settings, from 0."""
        self.name = f"discovery.dns[{number}]"
        self.sources: list[Source] = []
        self._host = name
        self._addresses = Addresses(MISSES)
        self._telemetry = telemetry
        self._resolve = resolve
        self._asked: asyncio.Future[Sequence[str]] | None = None
        self._presence = Presence(self.name, telemetry)

    async def resolve(self) -> list[Source] | None:
        """Return the sources as of a new answer; None if there is none."""
        if self._asked is None:
            self._asked = asyncio.ensure_future(self._resolve(self._host.name, self._host.family))
        done, _ = await asyncio.wait({self._asked}, timeout=ANSWER_SECONDS)
        if not done:
            reason = f"no answer in {ANSWER_SECONDS:g} s"
            self._telemetry.name_unresolved(self._host.name, reason)
            return None
        asked, self._asked = self._asked, None
        try:
            addresses = asked.result()
        except NameUnresolved as error:
            self._telemetry.name_unresolved(self._host.name, str(error))
            return None
        return named_sources(self._host, self._addresses.answered(addresses))

    async def begin(self) -> None:
        """Resolve once; without an answer there are no sources yet."""
        self.sources = self._presence.begin(await self.resolve() or [])

    async def follow(self, changed: Callable[[], None]) -> None:
        """Resolve every RESOLVE_SECONDS, for ever."""
        try:
            while True:
                sources = await self.resolve()
                if sources is not None:
                    self.sources = self._presence.answered(sources, time.monotonic())
                    changed()
                else:
                    self._presence.unanswered()
                await asyncio.sleep(RESOLVE_SECONDS)
        finally:
            if self._asked is not None:
                self._asked.cancel()
