"""What the subscriber's thread has received and the event loop has not dealt with, bounded in bytes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable

from connectors.frames.bundle import Bundle, Bundles
from connectors.receive.received import MESSAGE_OVERHEAD_BYTES, Key, Received, Together
from connectors.sources import Listening, SourceKey


class HandOver:
    """One thread puts, one event loop takes and releases."""

    def __init__(self, bound: int, wake: Callable[[], None]) -> None:
        """From `bound` bytes on it is full; `wake` is called in the loop when it no longer is."""
        self._bound = bound
        self._wake = wake
        self._arrived: deque[Received | Together] = deque()
        self._lock = threading.Lock()
        self.waiting_bytes = 0
        """Bytes put and not yet released."""
        self._unseen_bytes: dict[Key | Listening, int] = {}
        self._left_out: dict[Key, Received] = {}
        """What `put_left_out` appended and `take` has not returned yet."""
        self.ended = False
        """Whether nothing more will arrive."""
        self._failure: BaseException | None = None
        self.put_messages = 0
        """Messages put so far; for the thread only."""
        self.full = False
        """True from when the bound is reached until half of it is free."""

    @property
    def waiting_messages(self) -> int:
        """Messages that `take` has not returned yet."""
        # Of a copy: the thread may append meanwhile.
        return sum(
            arrived.bundles.messages if isinstance(arrived, Together) else len(arrived.messages)
            for arrived in self._arrived.copy()
        )

    @property
    def free(self) -> int:
        """Bytes until the bound is reached."""
        return max(0, self._bound - self.waiting_bytes)

    @property
    def empty(self) -> bool:
        """Whether `take` would return nothing."""
        return not self._arrived

    # In the event loop.

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._some = asyncio.Event()

    async def wait(self, seconds: float | None) -> None:
        """Wait for messages or the end, for at most `seconds`."""
        self._some.clear()
        if self._arrived or self.ended:
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._some.wait(), seconds)

    def take(self) -> Received | Together | None:
        """Return what arrived first, None if nothing did. Raises what ended the thread before its time."""
        if self._arrived:
            arrived = self._arrived.popleft()
            if isinstance(arrived, Received):
                self._see(arrived)
            return arrived
        if self._failure is not None:
            raise self._failure
        return None

    def release(self, size: int) -> None:
        """Give back the bytes of messages that were dealt with."""
        with self._lock:
            self.waiting_bytes -= size
            wake = self.full and self.waiting_bytes <= self._bound // 2
            if wake:
                self.full = False
        if wake:
            self._wake()

    # In the thread.

    def put(self, source: Key, messages: Bundle, size: int, now: float) -> None:
        """Append messages, if there are any; `wake_loop` must follow."""
        if not messages:
            return
        taken = size + MESSAGE_OVERHEAD_BYTES * len(messages)
        self._count(len(messages), taken, source)
        self._arrived.append(Received(source, messages, now, taken))

    def exceeds_share(self, source: Key | Listening) -> bool:
        """Tell whether a source has more waiting for `take` than is free: others would find no room.

        What several sources hand over together does not count, as each has little. Engines that connect to
        us share a socket, but each is a source here.
        """
        return self._unseen_bytes.get(source, 0) > self.free

    def put_together(self, sources: list[SourceKey], bundles: Bundles, now: float) -> None:
        """Append messages of several sources, if there are any; `wake_loop` must follow."""
        if not sources:
            return
        taken = bundles.data.size + MESSAGE_OVERHEAD_BYTES * bundles.messages
        self._count(bundles.messages, taken)
        self._arrived.append(Together(sources, bundles, now, taken))

    def put_last(self, source: Key, now: float) -> None:
        """Append a mark that nothing more of a source will come; `wake_loop` must follow."""
        self._arrived.append(Received(source, Bundle.of(()), now, 0, last=True))

    def put_left_out(self, source: Key, messages: int, now: float) -> None:
        """Append how many messages of a paused peer were dropped, or add them to what waits of these.

        `wake_loop` must follow. However long the loop takes nothing, little waits.
        """
        with self._lock:
            waiting = self._left_out.get(source)
            if waiting is None:
                waiting = self._left_out[source] = Received(source, Bundle.of(()), now, 0)
                self._arrived.append(waiting)
            waiting.left_out += messages

    def end(self, failure: BaseException | None) -> None:
        """Let nothing more arrive; with a failure, `take` raises it after all that was put."""
        self._failure = failure
        self.ended = True
        self.wake_loop()

    def wake_loop(self) -> None:
        """Wake up the event loop if it waits for messages."""
        self.call(self._some.set)

    def _count(self, messages: int, size: int, source: Key | None = None) -> None:
        """Count what is put, before it is appended: it may be taken, and released, at once."""
        self.put_messages += messages
        with self._lock:
            if source is not None:
                self._unseen_bytes[source] = self._unseen_bytes.get(source, 0) + size
            self.waiting_bytes += size
            self.full |= self.waiting_bytes >= self._bound

    def _see(self, received: Received) -> None:
        with self._lock:
            if self._left_out.get(received.source) is received:
                del self._left_out[received.source]
            unseen = self._unseen_bytes.get(received.source, 0) - received.size
            if unseen > 0:
                self._unseen_bytes[received.source] = unseen
            else:
                self._unseen_bytes.pop(received.source, None)

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the event loop."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function)
