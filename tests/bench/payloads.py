"""What the benchmarks send: frames of real engines, and vLLM's own publisher benchmark's event."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import msgspec

CAPTURES = Path(__file__).parents[1] / "captures"


def captures() -> dict[str, list[bytes]]:
    """Return the payloads of every capture, in sequence order."""
    result = {}
    for path in sorted(CAPTURES.glob("*.frames.msgpack.gz")):
        frames = msgspec.msgpack.decode(gzip.decompress(path.read_bytes()))
        result[path.name.removesuffix(".frames.msgpack.gz")] = [payload for _, _, payload in frames]
    return result


def large_events(count: int = 512) -> list[bytes]:
    """Return batches of one stored event each: 32 blocks of 64 tokens, 2,048 tokens, map encoding."""
    rng = random.Random(7)
    payloads = []
    for number in range(count):
        event = {
            "type": "BlockStored",
            "block_hashes": [rng.getrandbits(64) for _ in range(32)],
            "parent_block_hash": rng.getrandbits(64),
            "token_ids": [_token(rng) for _ in range(2048)],
            "block_size": 64,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
            "extra_keys": [None] * 32,
            "group_idx": 0,
            "kv_cache_spec_kind": "full_attention",
        }
        payloads.append(msgspec.msgpack.encode([1_800_000_000.0 + number / 100, [event], 0]))
    return payloads


ARRAY_BYTES, MAP_BYTES = 6_196, 6_294
"""Of a `multimodal_event` in either encoding."""


def multimodal_event(seed: int = 7, *, as_map: bool) -> bytes:
    """Return a batch of 2,048 tokens, 32 blocks of 64, with three multimodal features, of just these bytes.

    The event is vLLM 0.30's, in the encoding asked for. As many tokens are large as give it its size.
    """
    large = 0
    payload = b""
    while len(payload) < (MAP_BYTES if as_map else ARRAY_BYTES):
        payload = _multimodal(random.Random(seed), large, as_map=as_map)
        large += max(1, ((MAP_BYTES if as_map else ARRAY_BYTES) - len(payload)) // 2)
    return payload


def _multimodal(rng: random.Random, large: int, *, as_map: bool) -> bytes:
    features = [(rng.randbytes(32).hex(), first, first + 618) for first in (64, 704, 1344)]
    keys = []
    for block in range(0, 2048, 64):
        found = [(name, begin - block) for name, begin, end in features if begin < block + 64 and end > block]
        keys.append(found or None)
    fields = {
        "block_hashes": [rng.getrandbits(64) | 1 << 63 for _ in range(32)],
        "parent_block_hash": rng.getrandbits(64) | 1 << 63,
        "token_ids": [rng.randrange(256, 65_536) if n < large else rng.randrange(128) for n in range(2048)],
        "block_size": 64,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": keys,
        "group_idx": 0,
    }
    absent = ("kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality", "ownership", "session_id")
    as_array = ["BlockStored", *fields.values(), *[None] * len(absent)]
    event = {"type": "BlockStored", **fields} if as_map else as_array
    return msgspec.msgpack.encode([1_800_000_000.0, [event], 0])


def _token(rng: random.Random) -> int:
    """Return a token id of a 151,936-word vocabulary, frequent ones being small: about 2.7 bytes each."""
    limit = rng.choices((128, 256, 65_536, 151_936), (20, 10, 60, 10))[0]
    return rng.randrange(limit)
