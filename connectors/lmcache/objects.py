"""What stands for an object of LMCache: eight bytes, and a group. No IO."""

from __future__ import annotations

from connectors.lmcache.wire import MOST_OBJECT_GROUPS, MOST_WORKERS, ObjectKey
from connectors.normalise.errors import EventError
from connectors.normalise.hashes import pack_hash
from connectors.normalise.pseudonyms import Pseudonyms

_ROOM = MOST_WORKERS * (MOST_WORKERS - 1) // 2 + MOST_WORKERS
"""Groups that all workers of all engines of up to MOST_WORKERS take."""


def object_hash(key: ObjectKey, salts: Pseudonyms | None) -> bytes:
    """Return the last eight bytes of a chunk's digest; for a salted one, a keyed hash of salt and digest.

    Objects of one chunk under two salts are two objects. Raises EventError: bad_block_hashes,
    bad_hash_length, no_salt_key.
    """
    try:
        digest = bytes.fromhex(key.chunk_hash_hex)
    except ValueError:
        raise EventError("bad_block_hashes") from None
    packed = pack_hash(digest)
    if not key.cache_salt:
        return packed
    if salts is None:
        raise EventError("no_salt_key")
    return bytes.fromhex(salts.name(f"{key.cache_salt}\0{digest.hex()}"))


def object_group(key: ObjectKey) -> int:
    """Return the group of an object, a number of its own for each worker and object group.

    Workers hold different tensors of the same tokens, as KV-cache groups do. Worker r of an engine of n is
    n (n - 1) / 2 + r, so that a single one is 0, and two are 1 and 2. Raises EventError(bad_group) for more
    workers or groups than there is room for.
    """
    workers, worker = max(key.kv_rank >> 24, 1), key.kv_rank >> 16 & 0xFF
    if worker >= workers or workers > MOST_WORKERS or key.object_group_id >= MOST_OBJECT_GROUPS:
        raise EventError("bad_group")
    return key.object_group_id * _ROOM + workers * (workers - 1) // 2 + worker
