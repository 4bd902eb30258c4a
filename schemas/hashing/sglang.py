"""Block hashes of SGLang, from token ids.

A page's hash is the SHA-256 of the page's before it and its tokens, four bytes each. Events have the first
eight bytes of it. Source: `get_hash_str` and `compute_node_event_hash_values` of
sglang/srt/mem_cache/utils.py, `namespaced_block_hash` of sglang/srt/disaggregation/kv_events.py, releases
0.5.6 to 0.5.23; later ones are taken to be like the last.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.hashing.errors import NotComputable
from schemas.hashing.versions import release

SALTED = (0, 5, 18)
"""Before, hashes do not know of salts."""
DYNAMO = (0, 5, 22)
NEWEST = (0, 5, 23)
"""The last release whose hashes were compared; later ones are taken to be like it."""
NAMESPACED = (0, 5, 23)
"""Before, hashes do not know of adapters; and token ids have 32 bits."""

_LARGEST = (1 << 32) - 1


@dataclass(frozen=True)
class Sglang:
    """Hashes as one SGLang engine computes them. Raises NotComputable where they cannot be."""

    version: str
    """SGLang's, such as `0.5.23`."""
    page_size: int = 1
    """Tokens of a page."""
    pairs: bool = False
    """Whether the engine caches pairs of neighbouring tokens, as with EAGLE: a page has so many pairs."""
    dynamo: bool = False
    """Whether `--kv-events-config` has the format `dynamo`."""

    def __post_init__(self) -> None:
        if self.page_size < 1:
            raise NotComputable("a page has one token or more")
        if self.dynamo and release(self.version) < DYNAMO:
            raise NotComputable(f"SGLang {self.version} does not know the format dynamo")

    def words(
        self, tokens: Sequence[int], *, salt: str | None = None, extra_key: str | None = None
    ) -> list[int]:
        """Return the 64 bits of each full page that events have, unsigned.

        `extra_key` is that of a request with an adapter, which ends in the adapter's id; with the format
        dynamo that of any request.
        """
        version = release(self.version)
        wide = version >= NAMESPACED
        own = list(tokens)
        if self.pairs:
            own = [token for pair in itertools.pairwise(own) for token in pair]
        width = self.page_size * (2 if self.pairs else 1)
        digest = b""
        if salt and version >= SALTED:
            digest = hashlib.sha256(b"sglang-cache-salt-v1\0" + salt.encode()).digest()
        space = self._namespace(extra_key, salt or None)
        words = []
        for start in range(0, len(own) - width + 1, width):
            digest = hashlib.sha256(digest + _packed(own[start : start + width], wide)).digest()
            shown = hashlib.sha256(space + digest[:8]).digest() if space else digest
            words.append(int.from_bytes(shown[:8], "big"))
        return words

    def _namespace(self, extra_key: str | None, salt: str | None) -> bytes:
        """Return what a hash is hashed with once more, empty for nothing."""
        parts = (extra_key, salt if self.dynamo else None)
        if parts == (None, None) or not (self.dynamo or release(self.version) >= NAMESPACED):
            return b""
        space = hashlib.sha256(b"sglang-kv-event-namespace-v1")
        for part in parts:
            text = None if part is None else part.encode()
            space.update(b"\0" if text is None else b"\1" + len(text).to_bytes(8, "little") + text)
        return space.digest()


def _packed(tokens: list[int], wide: bool) -> bytes:
    """Return the tokens as the engine hashes them, little-endian. Raises NotComputable."""
    largest = max(tokens)
    if min(tokens) < 0 or largest >> 63 or (largest > _LARGEST and not wide):
        raise NotComputable("a token id that this engine cannot hash")
    if largest > _LARGEST:
        return struct.pack(f"<B{len(tokens)}Q", 0xFF, *tokens)
    return struct.pack(f"<{len(tokens)}I", *tokens)
