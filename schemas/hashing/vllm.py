"""Block hashes of vLLM, from token ids.

A block's hash covers the hash of the block before it, its tokens and its keys, so all of the prompt up to its
end; the first block follows a seed. Source: `hash_block_tokens`, `init_none_hash` and
`get_request_block_hasher` of vllm/v1/core/kv_cache_utils.py and vllm/utils/hashing.py, releases 0.9.2 to
0.33.0; later ones are taken to be like the last.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from schemas.hashing.builtin_hash import hash_block
from schemas.hashing.cbor import encoded, encoded_block
from schemas.hashing.errors import NotComputable
from schemas.hashing.versions import Version, release
from schemas.hashing.vllm_keys import Keys, Request

Algorithm = Literal["sha256", "sha256_cbor", "xxhash", "xxhash_cbor", "sha256_cbor_64bit", "builtin"]
"""As `--prefix-caching-hash-algo` names them."""

ALGORITHMS: dict[Algorithm, tuple[Version, Version | None]] = {
    "sha256": ((0, 10, 2), None),  # before, its integers have 256 bits and get into no event
    "sha256_cbor": ((0, 10, 2), None),
    "xxhash": ((0, 13, 0), None),
    "xxhash_cbor": ((0, 13, 0), None),
    "sha256_cbor_64bit": ((0, 10, 0), (0, 10, 2)),
    "builtin": ((0, 9, 0), (0, 10, 0)),  # 0.10.0 and 0.10.1 seed it with the hash of a text, which is secret
}
"""Since which version, and before which, an algorithm's hashes can be computed."""

FIXED_SEED = (0, 29, 0)
"""Since then sha256 and sha256_cbor need no PYTHONHASHSEED."""
LOOKAHEAD = (0, 33, 0)
NEWEST: Version = (0, 33, 0)
"""The last release whose hashes were compared; later ones are taken to be like it."""

_DEFAULT_SEED = "vllm-none-hash"
_WORD = (1 << 64) - 1
_LARGEST = (1 << 63) - 1
_PLAIN = Request()


@dataclass(frozen=True)
class Vllm:
    """Hashes as one vLLM engine computes them. Raises NotComputable where nobody else can."""

    version: str
    """vLLM's, such as `0.31.0`."""
    block_size: int = 16
    """Tokens of a block; of a hybrid model, those of the smallest (`hash_block_size`)."""
    algorithm: Algorithm = "sha256"
    seed: str | None = None
    """The engine's PYTHONHASHSEED."""
    lookahead: int = 0
    """Tokens behind a block that its hash covers (`num_hash_lookahead_tokens`), 0 for most engines."""

    def __post_init__(self) -> None:
        version = release(self.version)
        if self.block_size < 1 or self.lookahead < 0:
            raise NotComputable("a block has one token or more, a lookahead none or more")
        if self.algorithm not in ALGORITHMS:
            raise NotComputable(f"unknown algorithm {self.algorithm!r}; there are {', '.join(ALGORITHMS)}")
        first, until = ALGORITHMS[self.algorithm]
        if version < first or (until is not None and version >= until):
            raise NotComputable(
                f"hashes of {self.algorithm} in vLLM {self.version} cannot be computed outside"
            )
        if self.lookahead and version < LOOKAHEAD:
            raise NotComputable(f"vLLM {self.version} hashes no tokens behind a block")
        fixed = version >= FIXED_SEED and self.algorithm in ("sha256", "sha256_cbor")
        if self.seed is None and not fixed:
            raise NotComputable("the engine draws a seed at random unless it has a PYTHONHASHSEED: say it")

    def digests(self, tokens: Sequence[int], request: Request = _PLAIN) -> list[bytes]:
        """Return the whole hash of each full block, the first one's first: 32 bytes, 16 of xxhash, or 8."""
        hashed = _hash_of(self.algorithm)
        parent = _seed(self.algorithm, _DEFAULT_SEED if self.seed is None else self.seed)
        version = release(self.version)
        # Arrays of other libraries have integers of their own, which pickle writes otherwise.
        own: Sequence[int] = tokens.tolist() if hasattr(tokens, "tolist") else tokens
        size, ahead = self.block_size, self.lookahead
        if own and not 0 <= min(own) <= max(own) <= _LARGEST:
            raise NotComputable("a token id that is negative or has more than 63 bits")
        digests = []
        for start in range(0, len(own) - size - ahead + 1, size):
            end = start + size
            keys = request.keys(version, start, end + ahead)
            if ahead:
                keys = (keys, *own[end : end + ahead])
            parent = hashed(parent, tuple(own[start:end]), keys)
            digests.append(parent if isinstance(parent, bytes) else (parent & _WORD).to_bytes(8, "big"))
        return digests

    def words(self, tokens: Sequence[int], request: Request = _PLAIN) -> list[int]:
        """Return the 64 bits of each that events have, unsigned: the last eight bytes."""
        return [int.from_bytes(digest[-8:], "big") for digest in self.digests(tokens, request)]


Parent = bytes | int
Hash = Callable[[Parent, tuple[int, ...], Keys], Parent]


def _pickled(value: object) -> bytes:
    return pickle.dumps(value, protocol=5)  # the highest of every Python that vLLM runs on


def _xxh3(data: bytes) -> bytes:
    try:
        from xxhash import xxh3_128_digest
    except ImportError as error:
        raise NotComputable("vLLM's xxhash needs the package xxhash: pip install xxhash") from error
    digest: bytes = xxh3_128_digest(data)
    return digest


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _last_64_bits(data: bytes) -> int:
    return int.from_bytes(_sha256(data)[-8:], "big")


def _hash_of(algorithm: Algorithm) -> Hash:
    if algorithm == "builtin":
        return hash_block
    if algorithm == "sha256_cbor_64bit":
        return lambda parent, tokens, keys: _last_64_bits(encoded_block(parent, tokens, keys))
    digest = _xxh3 if algorithm.startswith("xxhash") else _sha256
    if algorithm.endswith("cbor"):
        return lambda parent, tokens, keys: digest(encoded_block(parent, tokens, keys))
    return lambda parent, tokens, keys: digest(_pickled((parent, tokens, keys)))


def _seed(algorithm: Algorithm, seed: str) -> Parent:
    """Return what the first block follows."""
    if algorithm == "builtin":
        return int.from_bytes(_sha256(_pickled(seed)), "big")
    if algorithm == "sha256_cbor_64bit":
        return _last_64_bits(encoded(seed))
    digest = _xxh3 if algorithm.startswith("xxhash") else _sha256
    return digest(encoded(seed) if algorithm.endswith("cbor") else _pickled(seed))
