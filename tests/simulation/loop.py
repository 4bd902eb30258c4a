"""Virtual time, and processes of which a schedule decides at every await what becomes of them.

A process is an event loop of its own over which the world has all power: it runs what is ready, of the
process that chance says, and between any two callbacks a process may be killed or frozen. A killed process
runs nothing any more, no `finally` either; what it had sent may arrive or not.

Processes meet only in what they send, so their callbacks need not alternate one by one. As with asyncio's own
loop, those that are ready run in one go, and what arrives meanwhile has its turn after them.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from asyncio.futures import _set_result_unless_cancelled  # type: ignore[attr-defined]
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar, cast

BEGINNING = 1_800_000_000.0
"""Seconds since the epoch, by a clock that is right."""
MOST_STEPS = 300_000
"""Far more callbacks than any schedule takes."""
STEP_SECONDS = 20e-6
"""That a callback takes."""

Result = TypeVar("Result")


class Killed(BaseException):
    """Raised where a process ends itself, so that nothing goes on there."""


class Restless(Exception):
    """Processes go on and on."""


class Handle(list[Any]):
    """A callback that waits for its turn, as asyncio's own but for what debugging needs.

    Callback, arguments, context, and when it is due; no callback any more when it was cancelled. A list, as
    nothing is made more often, and nothing faster.
    """

    __slots__ = ()

    def cancel(self) -> None:
        """Do not run."""
        self[:2] = None, ()

    def cancelled(self) -> bool:
        return self[0] is None

    def when(self) -> float:
        return cast(float, self[3])


class Line:
    """A connection on which what was sent first arrives first; when it breaks, nothing behind arrives."""

    __slots__ = ("arrived", "broken")

    def __init__(self) -> None:
        self.arrived = 0.0
        self.broken = False


class World:
    """The time that all share, and who is next."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        """Seconds since the beginning."""
        self.rng = random.Random(f"world {seed}")
        self.steps = 0
        self.processes: list[Process] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._runnable: list[Process] = []
        self.slow_until = 0.0
        """Until then what is sent takes long."""

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Call something at a time."""
        self._number += 1
        heapq.heappush(self._timers, (when, self._number, call))

    def latency(self) -> float:
        """Return how long something takes to arrive."""
        rng = self.rng
        seconds = rng.random() * (0.2 if rng.random() < 0.05 else 0.004)
        return seconds + rng.random() * 3.0 if self.now < self.slow_until else seconds

    def awake(self, process: Process) -> None:
        """A process has something to do."""
        if not process.queued and not process.frozen and process.alive:
            process.queued = True
            self._runnable.append(process)

    def run(self, until: float, *, unless: Callable[[], bool] | None = None) -> None:
        """Let time pass up to a moment, or until `unless` says, while nobody has anything to do, that it is
        enough."""
        timers, runnable, rng, pop = self._timers, self._runnable, self.rng, heapq.heappop
        running: Process | None = None
        while True:
            while timers and timers[0][0] <= self.now:
                pop(timers)[2]()
            if runnable:
                at = int(rng.random() * len(runnable)) if len(runnable) > 1 else 0
                process = runnable[at]
                if process is not running:
                    asyncio._set_running_loop(process)
                    running = process
                self.steps += process.turn()
                if process.rests:
                    process.queued = False
                    runnable[at] = runnable[-1]
                    runnable.pop()
                if self.steps > MOST_STEPS:
                    raise Restless(f"no rest after {MOST_STEPS} callbacks, the last ones of {process.name}")
            elif unless is not None and unless():
                break
            elif timers and timers[0][0] <= until:
                self.now = timers[0][0]
            else:
                self.now = max(self.now, until)
                break
        asyncio._set_running_loop(None)


class Process(asyncio.AbstractEventLoop):
    """One simulated process; `asyncio` inside of it finds this as its running loop."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.frozen = False
        self.queued = False
        self.clock_ahead = 0.0
        """Seconds by which its wall clock is ahead of the right one."""
        self.failure: BaseException | None = None
        """What ended it, if that was an error of its own."""
        self.on_end: Callable[[], None] = lambda: None
        self._ready: deque[Handle] = deque()
        self._fuse: tuple[int, Callable[[], None]] | None = None
        self._ambush: tuple[str, int, Callable[[], None]] | None = None
        self._steps = 0
        self._freezes = 0
        world.processes.append(self)

    # What becomes of it

    def kill(self, failure: BaseException | None = None) -> None:
        """End it at once.

        What was ready stays: a task that nobody has any more is ended by Python, and runs its `finally`.
        """
        if self.alive:
            self.alive, self.failure = False, failure
            self.on_end()

    def freeze(self, seconds: float) -> None:
        """Let it do nothing for a while; it does not know."""
        self.frozen = True
        self._freezes = number = self._freezes + 1
        self.world.at(self.world.now + seconds, lambda: self.thaw(number))

    def after_steps(self, steps: int, then: Callable[[], None]) -> None:
        """Do something when it has run so many more callbacks: at the await that these lead to."""
        self._fuse = (self._steps + steps, then)

    def thaw(self, freeze: int | None = None) -> None:
        """Let it go on; with a number, if it is this freeze that lasts. Without, nothing else comes of it."""
        if freeze is None:
            self._fuse = self._ambush = None
        elif freeze != self._freezes:
            return
        self.frozen = False
        if self._ready:
            self.world.awake(self)

    @property
    def rests(self) -> bool:
        """Whether there is nothing to run now."""
        return not self._ready or self.frozen or not self.alive

    def turn(self) -> int:
        """Run what is ready; return how many callbacks these were."""
        before, ready, world = self._steps, self._ready, self.world
        for _ in range(len(ready)):
            if self.frozen or not self.alive:
                break
            callback, arguments, context, _ = ready.popleft()
            if callback is not None:
                try:  # noqa: SIM105 - `suppress` takes longer than most callbacks
                    context.run(callback, *arguments)
                except (Exception, asyncio.CancelledError, Killed):
                    pass  # those of tasks are told to whoever waits for them
            self._steps += 1
            world.now += STEP_SECONDS
            if self._fuse is not None and self._steps >= self._fuse[0]:
                (_, then), self._fuse = self._fuse, None
                then()
        return self._steps - before

    def at_next(self, what: str, number: int, then: Callable[[], None]) -> None:
        """Do something when so many more of what this process sends have arrived, as soon as they have."""
        self._ambush = (what, number, then)

    def happens(self, what: str) -> None:
        """What was sent has arrived: a fault may have waited for that."""
        if self._ambush is not None and self._ambush[0] == what:
            _, number, then = self._ambush
            self._ambush = None if number <= 1 else (what, number - 1, then)
            if number <= 1:
                then()

    def request(
        self, effect: Callable[[], Result], line: Line | None = None, what: str = ""
    ) -> asyncio.Future[Result]:
        """Send something to another machine, where `effect` happens, and wait for the answer.

        What is sent by a process that is killed meanwhile arrives or does not; nobody gets the answer. `what`
        names it for faults that wait for it.
        """
        answer: asyncio.Future[Result] = self.create_future()
        world = self.world
        if not self.alive:
            return answer
        arrives_at = world.now + world.latency()
        if line is not None:
            arrives_at = line.arrived = max(arrives_at, line.arrived)

        def arrives() -> None:
            if line is not None and line.broken:
                return
            if not self.alive and world.rng.random() < 0.5:
                if line is not None:
                    line.broken = True
                return
            try:
                result, error = effect(), None
            except Exception as raised:
                result, error = cast(Any, None), raised
            if what:
                self.happens(what)
            if self.alive:
                world.at(world.now + world.latency(), lambda: self._tell(answer, result, error))

        world.at(arrives_at, arrives)
        return answer

    def _tell(self, answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        # Nothing of the process runs before whoever waits does, so the answer needs no turn of its own.
        if not self.alive or answer.done():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    # What asyncio asks of a loop

    def time(self) -> float:
        return self.world.now

    def call_soon(
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = Handle((callback, args, contextvars.copy_context() if context is None else context, 0.0))
        self._ready.append(handle)
        if not self.queued:
            self.world.awake(self)
        return cast(asyncio.Handle, handle)

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.world.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = Handle((callback, args, contextvars.copy_context() if context is None else context, when))
        self.world.at(when, lambda: self._due(handle))
        return cast(asyncio.TimerHandle, handle)

    def _due(self, handle: Handle) -> None:
        callback, arguments, _, _ = handle
        if not self.alive or callback is None:
            return
        if callback is _set_result_unless_cancelled:
            callback(*arguments)  # of `sleep`: only whoever sleeps needs a turn
        else:
            self._ready.append(handle)
            self.world.awake(self)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **options: Any) -> Any:
        return asyncio.Task(coro, loop=self, **options)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Threads work at once, at some moment between now and when somebody hears of it."""

        def work() -> Any:
            before = asyncio._get_running_loop()
            asyncio._set_running_loop(self)
            try:
                return func(*args)
            finally:
                asyncio._set_running_loop(before)

        return self.request(work)

    get_debug = staticmethod(bool)  # type: ignore[assignment]
    """False; asked for each future."""

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tasks that nobody waits for; what counts shows in what they did."""


def here() -> Process:
    """Return the process in which this runs."""
    return cast(Process, asyncio.get_running_loop())


def fatal(error: BaseException) -> None:
    """End the running process because of an error, as `pipeline/worker/exits.py` does: nothing goes on."""
    here().kill(error)
    raise Killed
