"""Python's own `hash` of a block, which vLLM 0.9 used by default.

Of numbers it is the same in every process. Of None it is since Python 3.12; before, it is an address. Of
texts it is never. So there are no hashes of blocks with a salt or multimodal items, nor of engines on older
Pythons.
Source: `tuplehash` of Objects/tupleobject.c.
"""

from __future__ import annotations

from schemas.hashing.errors import NotComputable
from schemas.hashing.vllm_keys import Keys

_NONE = 0xFCA86420
_MASK = (1 << 64) - 1
_P1, _P2, _P5 = 11400714785074694791, 14029467366897019727, 2870177450012600261


def hash_block(parent: int | bytes, tokens: tuple[int, ...], keys: Keys) -> int:
    """Return `hash((parent, tokens, keys))` as Python 3.12 and later compute it."""
    if keys is not None and not all(isinstance(key, int) for key in keys):
        raise NotComputable(
            "Python's hash of a text is a secret of the process: no salt, no multimodal items"
        )
    total = _P5
    for lane in (hash(parent), hash(tokens), _NONE if keys is None else hash(keys)):
        total = (total + (lane & _MASK) * _P2) & _MASK
        total = ((total << 31) | (total >> 33)) & _MASK
        total = total * _P1 & _MASK
    total = (total + (3 ^ _P5 ^ 3527539)) & _MASK
    if total == _MASK:
        return 1546275796
    return total - (1 << 64) if total >> 63 else total
