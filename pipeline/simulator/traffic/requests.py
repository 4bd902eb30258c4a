"""What a client asks of an engine; the answer is decided beforehand, so that runs are reproducible."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lora:
    """An adapter; its name is part of the block hashes."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class Request:
    """One turn: the prompt holds the whole conversation so far."""

    session: str
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    lora: Lora | None = None
    then: Request | None = None
    """What a decode replica gets once this one has computed the prompt."""
