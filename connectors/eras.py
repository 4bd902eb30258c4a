"""Which engine publishes a stream, and in which era of its encoding, judged from the events themselves.

Nothing in a payload names the engine. What tells the two apart (vLLM 0.9 to 0.33, SGLang 0.4 to 0.5.23):

- vLLM: a BlockStored array of nine or more elements, or of eight whose last is no map; a map with
  `group_idx` or `kv_cache_spec_kind`; a GPU hash that is bytes or at least 2**63.
- SGLang: a BlockStored array of eight whose last is a map (its metadata); a BlockRemoved of GPU blocks
  with several hashes (vLLM's block pool removes one per event); the medium CPU_PINNED; a negative GPU
  hash in an event of at least seven elements or a map (vLLM's are unsigned since that era).

Anything else leaves the engine unknown. The latest evidence wins.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from connectors.wire import ABSENT, EventMap

_METADATA_LENGTH = 8
_UNSIGNED_SINCE_LENGTH = 7


class StreamEra:
    """The engine and its encoding as far as seen.

    `engine` is "vllm", "sglang" or ""; `wire_era` is "map" or "array-N" with N the length of a
    BlockStored, prefixed "sglang-" for SGLang, or "" while none was seen.
    """

    def __init__(self) -> None:
        self.engine = ""
        self._encoding = ""

    @property
    def wire_era(self) -> str:
        return f"sglang-{self._encoding}" if self.engine == "sglang" and self._encoding else self._encoding

    @property
    def known(self) -> bool:
        return bool(self.engine and self._encoding)

    def saw_stored(
        self,
        fields: EventMap,
        length: int | None,
        hashes: Sequence[int | bytes],
        medium: str,
        raw: str | None,
    ) -> None:
        """Take note of a BlockStored: its undecoded fields, its array length (None: map), its hashes."""
        self._encoding = "map" if length is None else f"array-{length}"
        if length is None:
            if fields.group_idx != ABSENT or fields.kv_cache_spec_kind != ABSENT:
                self.engine = "vllm"
        elif length > _METADATA_LENGTH:
            self.engine = "vllm"
        elif length == _METADATA_LENGTH:
            self.engine = "sglang" if is_map(fields.lora_name) else "vllm"
        if medium == "gpu":
            unsigned_era = length is None or length >= _UNSIGNED_SINCE_LENGTH
            for value in hashes:
                if isinstance(value, bytes) or value >= 1 << 63:
                    self.engine = "vllm"
                elif value < 0 and unsigned_era:
                    self.engine = "sglang"
        self._saw_medium(raw)

    def saw_removed(
        self, length: int | None, hashes: Sequence[int | bytes], medium: str, raw: str | None
    ) -> None:
        """Take note of a BlockRemoved."""
        if length is None:
            self._encoding = "map"
        if medium == "gpu" and len(hashes) > 1:
            self.engine = "sglang"
        self._saw_medium(raw)

    def _saw_medium(self, raw: str | None) -> None:
        if raw is not None and raw.upper() == "CPU_PINNED":
            self.engine = "sglang"


def is_map(raw: Raw) -> bool:
    """Tell whether an undecoded value is a MessagePack map."""
    first = memoryview(raw)[0]
    return first & 0xF0 == 0x80 or first in (0xDE, 0xDF)
