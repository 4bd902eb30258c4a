"""Virtual time, and processes of which a schedule decides at every await what becomes of them.

A process is an event loop of its own over which the world has all power: it runs one callback at a time, of
the process that chance says, and between any two of them a process may be killed or frozen. A killed process
runs nothing any more, no `finally` either; what it had sent may arrive or not.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
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


class World:
    """The time that all share, and who is next."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        """Seconds since the beginning."""
        self.rng = random.Random(f"world {seed}")
        self.steps = 0
        self.processes: list[Process] = []
        self._timers: list[tuple[float, int, asyncio.Handle | Callable[[], None], Process | None]] = []
        self._number = 0
        self._runnable: list[Process] = []
        self.slow_until = 0.0
        """Until then what is sent takes long."""

    def at(
        self, when: float, call: asyncio.Handle | Callable[[], None], process: Process | None = None
    ) -> None:
        """Call something at a time; of a process, when it is neither frozen nor dead then."""
        self._number += 1
        heapq.heappush(self._timers, (when, self._number, call, process))

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

    def run(self, until: float, *, unless: Callable[[], bool] = lambda: False) -> None:
        """Let time pass up to a moment, or until `unless` says, while nobody has anything to do, that it is
        enough."""
        timers, runnable, rng = self._timers, self._runnable, self.rng
        running: Process | None = None
        while True:
            while timers and timers[0][0] <= self.now:
                _, _, call, process = heapq.heappop(timers)
                self._due(call, process)
            if runnable:
                at = int(rng.random() * len(runnable)) if len(runnable) > 1 else 0
                process = runnable[at]
                if process is not running:
                    asyncio._set_running_loop(process)
                    running = process
                if not process.step():
                    process.queued = False
                    runnable[at] = runnable[-1]
                    runnable.pop()
                self.steps += 1
                if self.steps > MOST_STEPS:
                    raise Restless(f"no rest after {MOST_STEPS} callbacks, the last ones of {process.name}")
                self.now += STEP_SECONDS
            elif unless():
                break
            elif timers and timers[0][0] <= until:
                self.now = timers[0][0]
            else:
                self.now = max(self.now, until)
                break
        asyncio._set_running_loop(None)

    def _due(self, call: asyncio.Handle | Callable[[], None], process: Process | None) -> None:
        if process is None:
            cast(Callable[[], None], call)()
        elif process.alive:
            process.push(cast(asyncio.Handle, call))


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
        self._ready: deque[asyncio.Handle] = deque()
        self._fuse: tuple[int, Callable[[], None]] | None = None
        self._steps = 0
        self._freezes = 0
        world.processes.append(self)

    # What becomes of it

    def kill(self, failure: BaseException | None = None) -> None:
        """End it at once."""
        if self.alive:
            self.alive, self.failure = False, failure
            self._ready.clear()
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
            self._fuse = None
        elif freeze != self._freezes:
            return
        self.frozen = False
        if self._ready:
            self.world.awake(self)

    def step(self) -> bool:
        """Run one callback; return whether there is another one."""
        if not self.alive or self.frozen or not self._ready:
            return False
        handle = self._ready.popleft()
        if not handle._cancelled:  # type: ignore[attr-defined]
            handle._run()  # type: ignore[attr-defined]
            self._steps += 1
            if self._fuse is not None and self._steps >= self._fuse[0]:
                (_, then), self._fuse = self._fuse, None
                then()
        return self.alive and not self.frozen and bool(self._ready)

    def push(self, handle: asyncio.Handle) -> None:
        """Let a callback run in its turn."""
        self._ready.append(handle)
        if not self.queued:
            self.world.awake(self)

    def request(self, effect: Callable[[], Result]) -> asyncio.Future[Result]:
        """Send something to another machine, where `effect` happens, and wait for the answer.

        What is sent by a process that is killed meanwhile arrives or does not; nobody gets the answer.
        """
        answer: asyncio.Future[Result] = self.create_future()
        world = self.world
        if not self.alive:
            return answer

        def arrives() -> None:
            if not self.alive and world.rng.random() < 0.5:
                return
            try:
                result, error = effect(), None
            except Exception as raised:
                result, error = cast(Any, None), raised
            if self.alive:
                told = asyncio.Handle(_tell, (answer, result, error), self)
                world.at(world.now + world.latency(), told, self)

        world.at(world.now + world.latency(), arrives)
        return answer

    # What asyncio asks of a loop

    def time(self) -> float:
        return self.world.now

    def call_soon(
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.push(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.world.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self.world.at(when, handle, self)
        return handle

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

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tasks that nobody waits for; what counts shows in what they did."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It stays where it is, and does nothing."""


def _tell(answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


def here() -> Process:
    """Return the process in which this runs."""
    return cast(Process, asyncio.get_running_loop())


def fatal(error: BaseException) -> None:
    """End the running process because of an error, as `pipeline/worker/exits.py` does: nothing goes on."""
    here().kill(error)
    raise Killed
