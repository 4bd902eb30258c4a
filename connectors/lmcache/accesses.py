"""What LMCache's access events say, as of 0.5.6. No IO."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from connectors.lmcache.objects import object_group, object_hash
from connectors.lmcache.wire import Entry
from connectors.normalise.errors import EventError
from connectors.normalise.pseudonyms import Pseudonyms
from schemas.events import Accessed

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
"""Backends of storage whose adapters tell of each object that they read for a request."""
_WHEN_FOUND: Final = frozenset({"bigtable", "hfbucket", "s3"})
"""Those that tell of each object that a request's lookup finds. Of others it is not known, or they tell
twice: valkey and sagemaker-hyperpod when it is found and when it is read."""
_ONE_EACH: Final = _WHEN_READ | _WHEN_FOUND


def are_reads(tier: str, backend: str) -> bool:
    """Tell whether each access is an object that was read for a request, so that memory has it next."""
    return tier == "l2" and backend in _WHEN_READ


def are_hits(tier: str, backend: str) -> bool:
    """Tell whether each access is one request that found the object.

    Memory touches what a lookup finds, and at the end of a request all its chunks, also those it stored.
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
    """Return the accesses in their order, and how many are left out because nobody can name their objects.

    `medium` is None where the server does not say it.
    """
    found: list[Accessed] = []
    hashes: list[bytes] = []
    left_out = 0
    for entry in entries:
        try:
            packed, group = object_hash(entry.key, salts), object_group(entry.key)
        except EventError:
            left_out += 1
            continue
        if not found or found[-1].group_idx != group:
            if found:
                found[-1].hashes = b"".join(hashes)
            hashes = []
            found.append(Accessed(b"", medium, raw_medium, group, hits))
        hashes.append(packed)
    if found:
        found[-1].hashes = b"".join(hashes)
    return found, left_out
