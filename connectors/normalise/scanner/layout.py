"""Types and bounds that all of the scanner shares."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from connectors.process.msgpack import Bytes as Bytes

Ints = NDArray[np.int64]

SESSIONS: Final = 1
SALTS: Final = 2
"""Bits of `named`: for what names are written."""
MAX_DEPTH: Final = 16
"""Engines nest four deep."""
MAX_EVENTS: Final = 0xFFFF
MAX_RUN_BYTES: Final = 0xFFFF
"""Packed hashes of one event: their length is written in two bytes."""
ROOM: Final = 640
"""Bytes that an event (without hashes and texts) or the frame of a batch takes at most."""
