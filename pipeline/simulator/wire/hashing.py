"""Chained block hashes, and the forms in which engines of different eras show them.

A block's digest covers the digest of its parent, its tokens and its extra key (the LoRA name), as vLLM's
`hash_block_tokens` does; the first block's parent is the seed of the hash domain.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from typing import Literal

HashForm = Literal["uint64", "int64", "bytes32", "bytes16", "mixed"]
"""`mixed`: integers for the GPU, raw bytes for the CPU tier (vLLM's OffloadingConnector 0.11 to 0.23)."""

HASH_FORMS: tuple[HashForm, ...] = ("uint64", "int64", "bytes32", "bytes16", "mixed")


def seed_digest(seed: str) -> bytes:
    """Return the parent of all first blocks; engines with equal seeds produce comparable hashes."""
    return hashlib.sha256(b"none-hash:" + seed.encode()).digest()


def chain_digests(
    seed: bytes, tokens: Sequence[int], block_size: int, extra: str | None = None
) -> tuple[bytes, ...]:
    """Return the digests (32 bytes each) of all full blocks of `block_size` tokens."""
    packed = array("I", tokens).tobytes()
    width = block_size * array("I").itemsize
    suffix = b"" if extra is None else b"\x00" + extra.encode()
    digests = []
    parent = seed
    for start in range(0, len(tokens) // block_size * width, width):
        parent = hashlib.sha256(parent + packed[start : start + width] + suffix).digest()
        digests.append(parent)
    return tuple(digests)


def rendered(digest: bytes, form: HashForm, medium: str = "gpu") -> int | bytes:
    """Return a digest as it appears on the wire.

    vLLM's integer is the last 8 bytes, unsigned; SGLang's is the first 8 bytes, signed. Raw digests are sent
    whole (sha256) or as 16 bytes (xxh3_128); all forms but `int64` end in the same 8 bytes.
    """
    if form == "uint64" or (form == "mixed" and medium == "gpu"):
        return int.from_bytes(digest[-8:], "big")
    if form == "int64":
        return int.from_bytes(digest[:8], "big", signed=True)
    if form == "bytes16":
        return digest[-16:]
    return digest
