"""What a request trace holds, in units stated by the file or given with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import PipelineError

HashId = int | str
"""Identifies a block and all before it; ids are only compared for equality."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace."""

    seconds: float
    input_length: int
    """Tokens."""
    hash_ids: tuple[HashId, ...]
    session: str = ""
    """The conversation, as far as the trace shows; sticky routing keeps it together."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The requests in order of time, those of equal times in the order of the file."""

    requests: list[TraceRequest]
    block_size: int
    """Tokens of one hash id."""
    block_size_from: str = ""
    """How that is known, as the words after "from"."""
    times: str | None = None
    """Unit of the file's times and how that is known; None: the file has none."""
    form: str = ""
    """The publisher's name for it."""
    remarks: tuple[str, ...] = ()
    """What the file lacks and what was assumed instead: a sentence each."""
    sessions_from: str = ""
    """What tells the conversations apart."""


class TraceError(PipelineError):
    """A trace that cannot be used; `where` names its line, or is empty where it is about the whole file."""

    path: Path
    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, {self.where}: {self.reason}" if self.where else f"{self.path}: {self.reason}"


class BadField(ValueError):
    """A value that a field cannot have; `str()` names the field and says what is wrong."""
