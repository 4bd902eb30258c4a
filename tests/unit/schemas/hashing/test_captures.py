"""Block hashes from the token ids of real engines' events, against the hashes in the same events."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from schemas.hashing import builtin_hash
from schemas.hashing.sglang import Sglang
from schemas.hashing.vllm import Vllm
from schemas.hashing.vllm_keys import Lora, Request
from tests.support.inputs.captures import captured_frames, captured_truth

_ARRAY = ("type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id")
_ARRAY += ("medium", "lora_name", "extra_keys")
_WORD = (1 << 64) - 1


def chains(name: str) -> list[tuple[list[int], list[int], dict[str, Any]]]:
    """Return each distinct chain of stored blocks that no longer one continues: its hashes, its tokens, its
    last event. Chains whose beginning or tokens are not known are left out."""
    found: dict[int, tuple[list[int], list[int], dict[str, Any]]] = {}
    longer: set[int] = set()
    for _, _, payload in captured_frames(name):
        for event in msgspec.msgpack.decode(payload)[1]:
            stored = dict(zip(_ARRAY, event, strict=False)) if isinstance(event, list) else event
            if stored["type"] != "BlockStored" or not stored["block_hashes"]:
                continue
            tokens, size, parent = stored["token_ids"], stored["block_size"], stored["parent_block_hash"]
            if not tokens or len(tokens) != size * len(stored["block_hashes"]):
                continue
            before: tuple[list[int], list[int], dict[str, Any]] | None = ([], [], stored)
            if parent is not None:
                before = found.get(parent & _WORD)
                longer.add(parent & _WORD)
            if before is None:
                continue
            hashes = before[0] + [each & _WORD for each in stored["block_hashes"]]
            salted = before[2] if before[0] else stored
            found[hashes[-1]] = (hashes, before[1] + tokens, salted)
    return [chain for last, chain in found.items() if last not in longer]


def salt_of(first: dict[str, Any]) -> str | None:
    """Return the salt of a chain, which the first block's extra keys have behind the adapter's name."""
    keys = [key for key in (first.get("extra_keys") or [None])[0] or [] if key != first.get("lora_name")]
    return keys[0] if keys else None


@pytest.mark.parametrize(
    "name", ["vllm-0.23.0-array-offload-cpu", "vllm-0.25.1-map-dp0", "vllm-0.25.1-map-dp1"]
)
def test_every_chain_of_vllm_with_adapters_and_salts(name: str) -> None:
    truth = captured_truth(name)
    engine = Vllm(truth["version"], 16, truth["args"]["algo"], truth["python_hash_seed"])
    kinds: Counter[tuple[bool, bool]] = Counter()
    for hashes, tokens, first in chains(name):
        lora = Lora(first["lora_name"]) if first.get("lora_name") else None
        salt = salt_of(first)
        kinds[lora is not None, salt is not None] += 1
        assert engine.words(tokens, Request(lora, salt)) == hashes
    assert kinds[False, False] > 5
    assert kinds[True, False] > 5
    assert kinds[False, True] > 1


@pytest.mark.parametrize("name", ["vllm-0.33.0-map", "vllm-0.33.0-map-hybrid-swa"])
def test_every_chain_of_vllm_whose_keys_events_tell(name: str) -> None:
    """An adapter's path is hashed and in no event."""
    truth = captured_truth(name)
    engine = Vllm(truth["version"], 16, truth["args"]["algo"], truth["python_hash_seed"])
    plain = [chain for chain in chains(name) if not chain[2].get("lora_name")]
    assert len(plain) > 30
    for hashes, tokens, first in plain:
        assert engine.words(tokens, Request(salt=salt_of(first))) == hashes


def test_most_chains_of_vllm_that_does_not_tell_salts() -> None:
    name = "vllm-0.16.0-array"
    truth = captured_truth(name)
    engine = Vllm(truth["version"], 16, truth["args"]["algo"], truth["python_hash_seed"])
    salts = (None, *(f"tenant-{number}" for number in range(4)))
    of_salt: Counter[str | None] = Counter()
    for hashes, tokens, first in chains(name):
        lora = Lora(first["lora_name"]) if first.get("lora_name") else None
        (salt,) = [each for each in salts if engine.words(tokens, Request(lora, each)) == hashes]
        of_salt[salt] += 1
    assert of_salt[None] > sum(of_salt[salt] for salt in salts[1:]) > 0


def test_python_s_own_hash_but_for_what_none_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The capture's Python is older than 3.12: its hash of None is an address, and follows from one block."""
    name = "vllm-0.9.2-array-builtin-hash"
    truth = captured_truth(name)
    engine = Vllm(truth["version"], 16, "builtin", truth["python_hash_seed"])
    found = chains(name)
    none = none_of(engine, *found[0][:2], monkeypatch)
    monkeypatch.setattr(builtin_hash, "_NONE", none)
    same = sum(engine.words(tokens) == hashes for hashes, tokens, _ in found)
    assert same > len(found) / 2  # chains with a salt, which the capture does not tell, are others
    assert sum(engine.words(tokens)[1:] == hashes[1:] for hashes, tokens, _ in found) == same


def none_of(engine: Vllm, hashes: list[int], tokens: list[int], monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the hash of None with which the first block has its hash: the last of three mixed lanes."""
    p1, p2, p5 = builtin_hash._P1, builtin_hash._P2, builtin_hash._P5
    monkeypatch.setattr(builtin_hash, "_NONE", 0)
    before = undone((engine.words(tokens[:16])[0] - (3 ^ p5 ^ 3527539)) & _WORD, p1)
    after = undone((hashes[0] - (3 ^ p5 ^ 3527539)) & _WORD, p1)
    return (after - before) * pow(p2, -1, 1 << 64) & _WORD


def undone(total: int, factor: int) -> int:
    turned = total * pow(factor, -1, 1 << 64) & _WORD
    return ((turned >> 31) | (turned << 33)) & _WORD


def test_every_page_of_sglang() -> None:
    name = "sglang-0.5.15-array"
    engine = Sglang("0.5.15", captured_truth(name)["page_size"])
    found = chains(name)
    assert len(found) > 50
    for hashes, tokens, _ in found:
        assert engine.words(tokens) == hashes
