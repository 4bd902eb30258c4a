"""Event loops that look names up in threads that hold up no exit: a resolver may take half a minute."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import Any

from connectors.process.leaving import aside


class _Loop(asyncio.SelectorEventLoop):
    """Can end while a name is being looked up; asyncio's own loop waits for the threads of its executor."""

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        return await aside(partial(socket.getaddrinfo, host, port, family, type, proto, flags))


class LookingUpAside(asyncio.DefaultEventLoopPolicy):
    """The policy under which `asyncio.run` makes such loops."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return _Loop()
