"""Objects of a store: what stands for their hash, and for their group."""

from __future__ import annotations

from hashlib import blake2b
from zlib import crc32

from connectors.normalise.wire import MAX_GROUP_IDX
from schemas.hashes import HASH_BYTES

DEFAULT_TENANT = "default"


def object_hash(key: str) -> bytes:
    """Return eight bytes that stand for an object's key, which itself goes no further."""
    return blake2b(key.encode(), digest_size=HASH_BYTES).digest()


def tenant_group(tenant: str) -> int:
    """Return the group that the objects of a tenant are in: 0 that of the default one."""
    return 0 if tenant == DEFAULT_TENANT else 1 + crc32(tenant.encode()) % MAX_GROUP_IDX
