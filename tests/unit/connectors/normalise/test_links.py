"""Links of blocks: the scanner and both decoders make those that `schemas.hashing.content` defines."""

from __future__ import annotations

import random
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np
import pytest

from connectors.normalise.links import Linker
from connectors.normalise.scanner import blake2b as compiled
from connectors.process.compiled import compiled_nogil, pointer_to_bytes, pointer_to_words
from pipeline.simulator.engine import events as simulator
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.simulator.wire.eras import ERAS
from schemas.events import Stored
from schemas.hashes import unpack_hashes
from schemas.hashing.content import link
from tests.support.decoders import Decoders
from tests.support.inputs.captures import NAMES, captured_frames
from tests.support.suite.night import first_by_day

KEYS = [b"", b"sixteen bytes ok", bytes(range(64)), b"long" * 40]
TOKENS = [0, 1, 127, 128, 255, 256, 65_535, 65_536, (1 << 32) - 1, *range(1_000, 1_023)]
HASHES = [2**63 + 1, 7]
encode = msgspec.msgpack.encode


@compiled_nogil
def _digest(state: Any, data: Any, size: int) -> Any:
    return compiled.finished(pointer_to_words(state.ctypes.data), pointer_to_bytes(data.ctypes.data), 0, size)


@pytest.mark.parametrize("key", [b"", b"k", bytes(range(64))], ids=len)
def test_compiled_digests_are_those_of_hashlib(key: bytes) -> None:
    rng = random.Random(11)
    for size in (1, 8, 76, 127, 128, 129, 255, 256, 257, 4_000):
        message = rng.randbytes(size)
        data = np.frombuffer(message + b"\xa5" * 200, np.uint8).copy()
        state = np.zeros(2 * compiled.STATE, np.uint64)
        state[: compiled.STATE] = compiled.state_of(key, b"somebody")
        digest = int(_digest(state, data, size)).to_bytes(8, "little")
        assert digest == blake2b(message, digest_size=8, key=key, person=b"somebody").digest()


def stored(event: Any, key: bytes = b"") -> Stored:
    """Return what an event becomes, by both decoders, which agree."""
    (found,) = Decoders(linker=Linker(key)).agreed(event, quick=True)
    assert isinstance(found, Stored)
    return found


def in_map(**fields: Any) -> dict[str, Any]:
    every = {
        "type": "BlockStored",
        "block_hashes": HASHES,
        "parent_block_hash": None,
        "token_ids": TOKENS,
        "block_size": 16,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        **fields,
    }
    return {name: value for name, value in every.items() if value is not ...}


def in_array(length: int, extra_keys: Any = None) -> list[Any]:
    return [*in_map().values(), extra_keys, 0, "full_attention", None][:length]


def links(event: Stored) -> list[int]:
    return list(unpack_hashes(event.links))


@pytest.mark.parametrize("key", KEYS, ids=len)
def test_links_are_those_of_the_definition(key: bytes) -> None:
    wanted = [link(TOKENS[:16], key=key), link(TOKENS[16:], key=key)]
    assert links(stored(in_map(), key)) == wanted
    assert links(stored(in_array(9), key)) == wanted
    assert links(stored(in_array(12, extra_keys=[None, []]), key)) == wanted
    assert links(stored(in_map(medium=None), key)) == wanted


def test_keys_adapters_and_salts_count() -> None:
    first, second = ["adapter", ["image" * 20, -7], "SALT"], [["x", 3]]
    event = in_map(extra_keys=[first, second], lora_name="sql", cache_salt="pepper")
    assert links(stored(event, KEYS[1])) == [
        link(TOKENS[:16], "sql", encode(first) + encode("pepper"), key=KEYS[1]),
        link(TOKENS[16:], "sql", encode(second) + encode("pepper"), key=KEYS[1]),
    ]
    long = "a" * 300
    assert links(stored(in_map(lora_name=long)))[1] == link(TOKENS[16:], long)
    assert links(stored(in_map(lora_id=4711)))[1] == link(TOKENS[16:], "4711")
    media = in_map(mm_keys=[[{"hash": "ab"}], None], cache_salt="")
    assert links(stored(media)) == [link(TOKENS[:16], keys=encode([{"hash": "ab"}])), link(TOKENS[16:])]


def test_blocks_of_many_tokens() -> None:
    tokens = [n * 7919 % 151_936 for n in range(2_176)]
    event = in_map(block_hashes=[5], token_ids=tokens, block_size=2_176)
    assert links(stored(event)) == [link(tokens)]


@pytest.mark.parametrize(
    "event",
    [
        in_array(8),
        in_map(token_ids=[]),
        in_map(token_ids=...),
        in_map(token_ids=TOKENS[:-1]),
        in_map(token_ids=[[token, token] for token in TOKENS]),
        in_map(token_ids=[1 << 32, *TOKENS[1:]]),
        in_map(token_ids=[-1, *TOKENS[1:]]),
        in_map(token_ids=[str(token) for token in TOKENS]),
        in_map(block_size=0, token_ids=[]),
        in_map(block_hashes=[], token_ids=[]),
        in_map(extra_keys=[None]),
        in_map(extra_keys=7),
        in_map(mm_keys=[None, None, None]),
        in_map(medium="CPU"),
    ],
    ids=[
        "keys not told",
        "placeholder",
        "no tokens",
        "masked",
        "pairs",
        "wide",
        "negative",
        "texts",
        "no size",
        "no blocks",
        "fewer keys",
        "odd keys",
        "more media keys",
        "other tier",
    ],
)
def test_what_does_not_tell_has_no_links(event: Any) -> None:
    assert stored(event).links == b""


@pytest.mark.parametrize("name", first_by_day(NAMES, 3))
def test_all_decoders_agree_on_captures(name: str) -> None:
    payloads = [payload for _, _, payload in captured_frames(name)]
    payloads = [payload for payload in payloads if len(payload) <= 64 << 10]
    decoders = Decoders(linker=Linker(b""))
    linked = 0
    for seq, (payload, batch) in enumerate(zip(payloads, decoders.scanned(*payloads, first=0), strict=True)):
        wanted = decoders.by_event(payload, seq)
        assert batch == decoders.single(payload, seq) == wanted
        linked += sum(bool(event.links) for event in wanted.events if isinstance(event, Stored))
    # Arrays before vLLM 0.17 and SGLang 0.5.20 say nothing of keys.
    assert bool(linked) == name.startswith(("vllm-0.2", "vllm-0.3"))


def test_another_engine_tells_the_same_links() -> None:
    rng = random.Random(3)
    tokens = tuple(rng.randrange(150_000) for _ in range(64))
    told = set()
    for era in ("vllm-0.17", "vllm-0.22", "vllm-0.24", "vllm-0.33", "sglang-0.5.23", "trtllm-1.3"):
        digests = tuple(rng.randbytes(32) for _ in range(4))
        event = simulator.Stored(digests, None, tokens, 16, "gpu", 0, "full_attention", None, None, None)
        (batch,) = Decoders(linker=Linker(b"")).scanned(encoded_batch(ERAS[era], 1.5, [event]))
        assert batch is not None
        told.add(b"".join(event.links for event in batch.events if isinstance(event, Stored)))
    assert told == {
        b"".join(link(tokens[at : at + 16]).to_bytes(8, "big") for at in range(0, 64, 16)),
    }
