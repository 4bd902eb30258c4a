"""What happens to the demo's fleet, when, and how the terminal says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Chapter:
    """One thing that happens, and what a viewer then finds on the boards."""

    seconds: float
    """Since the fleet's traffic began, which is when the connector has subscribed."""
    line: str
    changes: dict[str, str] = field(default_factory=dict)
    """Fleet process -> change, as in `kvlens simulate --at`; empty for what is so from the beginning."""

    def options(self, process: str) -> tuple[str, ...]:
        """Return the options of that process's `kvlens simulate`."""
        return ("--at", self.log_line(process)) if process in self.changes else ()

    def log_line(self, process: str) -> str:
        """Return the line that the process prints when it has happened."""
        return f"{self.seconds:g}:{self.changes[process]}"


STORY = (
    Chapter(
        0,
        "vllm-0.24-small has too little cache: it evicts what it soon fills again (capacity, board Model)",
    ),
    Chapter(
        0,
        "vllm-0.33-decode computes no prompts: vllm-0.33-prefill does, and sends them (transferred, board "
        "Replica)",
    ),
    Chapter(
        60,
        "minute 1: the router stops sending conversations back to the same replica; others fill again what "
        "it holds (routing, board Fleet)",
        {"fleet-tiered": "routing=round-robin", "fleet-ranks": "routing=round-robin"},
    ),
    Chapter(
        90,
        "30 batches of vllm-0.33-cpu are lost on the way; replay brings them back (board Pipeline health)",
        {"fleet-tiered": "drop=1,30"},
    ),
    Chapter(
        120,
        "minute 2: vllm-0.24-dp2 restarts with an empty cache (warm-up, board Replica)",
        {"fleet-ranks": "restart=0"},
    ),
    Chapter(
        150,
        "25 batches of vllm-0.14-cpu are lost for good: its figures are degraded (board Pipeline health)",
        {"fleet-tiered": "lose=0,25"},
    ),
    Chapter(
        210,
        "the router sends conversations back to the same replica again (routing falls, board Fleet)",
        {"fleet-tiered": "routing=sticky", "fleet-ranks": "routing=sticky"},
    ),
    Chapter(
        240,
        "minute 4: vllm-0.14-cpu restarts: its new session is seen from the start, complete again",
        {"fleet-tiered": "restart=0"},
    ),
)
"""What happens, in order of time. `fleet.py` has the replicas that the numbers mean, and their sizes."""

STORY_SECONDS = 300
"""From the beginning until the last chapter shows on the boards: the range that shows the whole story."""

ON_PURPOSE = {
    "vllm-0.14-cpu/0": "the demo loses batches of it for good at 2:30, and restarts it at 4:00, "
    "which repairs it"
}
"""Source -> why the doctor finds it degraded."""


class Narrator:
    """Reads from the logs of the fleet's processes what has happened since it was created."""

    def __init__(self, logs: Path, story: Sequence[Chapter] = STORY) -> None:
        self._to_come = list(story)
        processes = {process for chapter in story for process in chapter.changes}
        self._logs = {process: logs / f"{process}.log" for process in processes}
        self._begins = {process: _size(log) for process, log in self._logs.items()}

    def news(self) -> Iterator[str]:
        """Yield the line of each chapter that has happened since the last call."""
        said = {process: self._said(process) for process in self._logs}
        happened = [
            chapter
            for chapter in self._to_come
            if all(chapter.log_line(process) in said[process] for process in chapter.changes)
        ]
        self._to_come = [chapter for chapter in self._to_come if chapter not in happened]
        yield from (chapter.line for chapter in happened)

    def _said(self, process: str) -> list[str]:
        log = self._logs[process]
        if _size(log) < self._begins[process]:
            self._begins[process] = 0  # the log was rotated
        if not log.exists():
            return []
        with log.open("rb") as lines:
            lines.seek(self._begins[process])
            return lines.read().decode("utf-8", "replace").splitlines()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
