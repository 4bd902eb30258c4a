"""Reads wire bytes with nothing but generic MessagePack, and counts references.

What the positions of array-encoded events mean is written down from the engines' sources.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

STORED_FIELDS = (
    "type",
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
)
"""Of a BlockStored; older engines send fewer."""
REMOVED_FIELDS = ("type", "block_hashes", "medium", "group_idx")


def events_of(payload: bytes) -> list[dict[str, Any]]:
    """Return the events of a payload as maps with a `type`, whatever their encoding."""
    named = []
    for event in msgspec.msgpack.decode(payload)[1]:
        if isinstance(event, dict):
            named.append(event)
        else:
            fields = REMOVED_FIELDS if event[0] == "BlockRemoved" else STORED_FIELDS
            named.append(dict(zip(fields, event, strict=False)))
    return named


class ReferenceCounts:
    """What a consumer holds after each batch: copies per (medium, group, hash), and fine blocks apart."""

    def __init__(self, fine_block_size: int | None = None) -> None:
        self.copies: Counter[tuple[str, int, int | bytes]] = Counter()
        self.fine: list[tuple[int, int | bytes]] = []
        self.clears = 0
        self._fine_block_size = fine_block_size

    def apply(self, payload: bytes) -> None:
        for event in events_of(payload):
            medium = {"GPU": "gpu", None: "gpu", "CPU": "cpu", "CPU_PINNED": "cpu"}[event.get("medium")]
            group = event.get("group_idx") or 0
            if event["type"] == "AllBlocksCleared":
                self.clears += 1
                self.fine.clear()
                for key in [key for key in self.copies if key[0] == "gpu"]:
                    del self.copies[key]
            elif event["type"] == "BlockRemoved":
                for block in event["block_hashes"]:
                    key = (medium, group, block)
                    assert self.copies[key] > 0, "removed what was never stored"
                    self.copies[key] -= 1
                    if not self.copies[key]:
                        del self.copies[key]
            elif self._fine_block_size is not None and event["block_size"] == self._fine_block_size:
                self.fine += [(group, block) for block in event["block_hashes"]]
            else:
                self.copies.update((medium, group, block) for block in event["block_hashes"])

    def rows(self, medium: str) -> list[list[Any]]:
        """Rows [group, hash (bytes as hex), copies], as an engine's truth has them."""
        return sorted(
            (
                [group, block.hex() if isinstance(block, bytes) else block, count]
                for (where, group, block), count in self.copies.items()
                if where == medium
            ),
            key=str,
        )
