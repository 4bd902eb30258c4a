"""Where `connectors.normalise.scan` puts the function that scans a single payload, once it is compiled.

Compiling takes seconds, once a process, and numba a second to import; until then everything is decoded event
by event.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from connectors.engines.catalogue import Catalogue
from connectors.normalise.forwarding import Forwarding
from schemas.events import Batch


class Single(NamedTuple):
    """What the scanner made of a payload."""

    batch: Batch
    skipped: int
    """Its events that change nothing of what is resident."""
    rank: int


class ScanSingle(Protocol):
    """Scans a payload of any length; None where it gives up."""

    def __call__(
        self, payload: bytes, seq: int, received_at: float, forwarding: Forwarding, catalogue: Catalogue
    ) -> Single | None: ...


class Compiled:
    """Compiled code that is ready to be called."""

    scan_single: ScanSingle | None = None


COMPILED = Compiled()
"""Of this process."""
