"""The streams of real engines that tests replay, and what each engine knew (tests/captures/README.md)."""

from __future__ import annotations

import gzip
import json
from typing import Any

import msgspec

from tests.support.checkout import CAPTURES

_FRAMES, _TRUTH = ".frames.msgpack.gz", ".truth.json.gz"
NAMES = sorted(path.name.removesuffix(_FRAMES) for path in CAPTURES.glob(f"*{_FRAMES}"))


def captured_frames(name: str) -> list[list[bytes]]:
    """Return the messages of a capture as they came: topic, sequence number (8 bytes), payload."""
    packed = gzip.decompress((CAPTURES / f"{name}{_FRAMES}").read_bytes())
    found: list[list[bytes]] = msgspec.msgpack.decode(packed)
    return found


def captured_truth(name: str) -> dict[str, Any]:
    """Return the engine's own account of a capture."""
    found: dict[str, Any] = json.loads(gzip.decompress((CAPTURES / f"{name}{_TRUTH}").read_bytes()))
    return found
