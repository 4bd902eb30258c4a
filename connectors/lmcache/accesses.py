"""What LMCache's events say about objects: which they are, how they were accessed, as of 0.5.6. No IO."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import Final

from connectors.lmcache.wire import MOST_OBJECT_GROUPS, MOST_WORKERS, Entry, ObjectKey
from connectors.normalise.errors import EventError
from connectors.normalise.hashes import pack_hash
from connectors.normalise.pseudonyms import Pseudonyms
from schemas.events import Accessed

_ROOM = MOST_WORKERS * (MOST_WORKERS - 1) // 2 + MOST_WORKERS
"""Groups for each object group: one for each worker of each size of engine up to MOST_WORKERS, 8,128 in all.
With MOST_OBJECT_GROUPS that makes 65,024, for which a number of 16 bits has room."""
_WHEN_READ: Final = frozenset(
    {
        "aerospike",
        "dax",
        "fs",
        "fs_native",
        "hf3fs",
        "mock",
        "mooncake_store",
        "native_plugin",
        "nixl_native",
        "nixl_store",
        "nixl_store_dynamic",
        "raw_block",
        "resp",
    }
)
"""Backends of storage whose adapters report each object that they read for a request."""
_WHEN_FOUND: Final = frozenset({"bigtable", "hfbucket", "s3"})
"""Those that report each object that a request's lookup finds. Other backends are not known, or report twice:
valkey and sagemaker-hyperpod when an object is found and when it is read."""
_ONE_EACH: Final = _WHEN_READ | _WHEN_FOUND


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
    """Return the group of an object: each worker and object group has a number of its own.

    Workers hold different tensors of the same tokens, as KV-cache groups do. Worker r of an engine of n is
    n (n - 1) / 2 + r, so that a single one is 0, and two are 1 and 2. Raises EventError(bad_group) for more
    workers or groups than there is room for.
    """
    workers, worker = max(key.kv_rank >> 24, 1), key.kv_rank >> 16 & 0xFF
    if worker >= workers or workers > MOST_WORKERS or key.object_group_id >= MOST_OBJECT_GROUPS:
        raise EventError("bad_group")
    return key.object_group_id * _ROOM + workers * (workers - 1) // 2 + worker


def are_reads(tier: str, backend: str) -> bool:
    """Return whether each access is an object that was read for a request, and comes to memory next."""
    return tier == "l2" and backend in _WHEN_READ


def are_hits(tier: str, backend: str) -> bool:
    """Return whether each access is one request that found the object.

    Not in memory: it touches what a lookup finds and, when a request ends, all its chunks, also stored ones.
    """
    return tier == "l2" and backend in _ONE_EACH


def accessed(
    entries: Iterable[Entry],
    medium: str | None,
    raw_medium: str | None,
    salts: Pseudonyms | None,
    *,
    hits: bool,
) -> tuple[list[Accessed], int]:
    """Return the accesses in order, and how many are left out because their objects cannot be named.

    `medium` is None where the server does not report it.
    """
    named: list[tuple[int, bytes]] = []
    left_out = 0
    for entry in entries:
        try:
            named.append((object_group(entry.key), object_hash(entry.key, salts)))
        except EventError:
            left_out += 1
    found = [
        Accessed(b"".join(packed for _, packed in run), medium, raw_medium, group, hits)
        for group, run in groupby(named, itemgetter(0))
    ]
    return found, left_out
