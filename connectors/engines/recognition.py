"""Which engine publishes a stream, and in which era of its encoding, judged from the events themselves.

Nothing in a payload names the engine: each description says which events can only be its own. Anything else
leaves the engine as it was. The latest evidence wins.
"""

from __future__ import annotations

from collections.abc import Iterable

from connectors.engines.catalogue import EventForm
from connectors.engines.description import Encoding, Engine
from connectors.engines.sighting import Sighting


class StreamEra:
    """The engine and its encoding as far as seen."""

    def __init__(self, *, clears_all: bool = False) -> None:
        """With `clears_all` it is known that a clear that names no medium is for every one."""
        self._clears_all = clears_all
        self._engine: Engine | None = None
        self._certain = False
        """Whether something other than events has shown the engine."""
        self._encoding: Encoding | None = None
        self._length = 0
        """Elements of the last BlockStored, or what the engine calls it, in array form."""

    @property
    def engine(self) -> str:
        """Name of the engine, empty while nothing seen shows it."""
        return self._engine.name if self._engine else ""

    @property
    def wire_era(self) -> str:
        """`map`, or `array-N` with N elements of a store, after the engine's prefix; empty before a store."""
        if self._encoding is None:
            return ""
        prefix = self._engine.era_prefix if self._engine else ""
        return prefix + ("map" if self._encoding == "map" else f"array-{self._length}")

    @property
    def may_reannounce(self) -> bool | None:
        """Whether the engine may announce again what is resident; None while it is not known."""
        if self._engine is None or self._encoding is None:
            return None
        return self._encoding in self._engine.may_reannounce

    @property
    def one_copy(self) -> bool:
        """Whether the engine knows at most one copy of each block."""
        return self._engine is not None and self._engine.one_copy

    def store_only(self, medium: str) -> bool:
        """Return whether the engine announces no removals on a canonical medium where others may."""
        return self._engine is not None and medium in self._engine.store_only

    @property
    def clears_all(self) -> bool | None:
        """Whether a clear without a medium clears every one; None while the engine is not known."""
        return self._clears_all or (None if self._engine is None else self._engine.clears_all)

    @property
    def known(self) -> bool:
        return self._engine is not None and self._encoding is not None

    def saw(self, seen: Sighting, form: EventForm) -> None:
        """Judge an event that was understood, a store or a removal of the type `form`."""
        if seen.elements is None:
            self._encoding = "map"
        elif seen.kind == "stored":
            self._encoding, self._length = "array", len(seen.elements)
        if self._certain:
            return
        for engine in form.engines:
            if engine.recognised(seen) or (self._engine is None and engine.suspected(seen)):
                self._engine = engine

    def unnumbered(self, engines: Iterable[Engine]) -> None:
        """Conclude from a message without a sequence number which engine it is."""
        for engine in engines:
            if engine.unnumbered:
                self._engine, self._certain = engine, True
