"""Block hashes against those that the engines' own code computed (tests/data/hashing)."""

from __future__ import annotations

import hashlib
import json
import runpy
from typing import Any

import pytest

from schemas.hashing.errors import NotComputable
from schemas.hashing.sglang import Sglang
from schemas.hashing.vllm import Vllm
from schemas.hashing.vllm_keys import Item, Lora, Request
from tests.support.checkout import ROOT

DATA = ROOT / "tests" / "data" / "hashing"
CASES = runpy.run_path(str(DATA / "cases.py"))
PROMPTS: dict[str, dict[str, dict[str, Any]]] = {
    "vllm": CASES["vllm_prompts"](),
    "sglang": CASES["sglang_prompts"](),
}


def recorded(engine: str) -> list[list[Any]]:
    found: list[list[Any]] = json.loads((DATA / f"{engine}.json").read_text())
    return found


def digest(hashes: list[bytes]) -> str:
    return hashlib.sha256(b"".join(hashes)).hexdigest()[:32]


def request_of(prompt: dict[str, Any]) -> Request:
    lora = Lora(**prompt["lora"]) if "lora" in prompt else None
    return Request(lora, prompt.get("salt"), [Item(*each) for each in prompt.get("items", ())])


@pytest.mark.parametrize("version", sorted({row[0] for row in recorded("vllm")}))
def test_vllm(version: str) -> None:
    rows = [row for row in recorded("vllm") if row[0] == version]
    texts = ("salt", "items", "all")
    for _, algorithm, seed, block_size, lookahead, name, count, expected in rows:
        prompt = PROMPTS["vllm"][name]
        engine = Vllm(version, block_size, algorithm, seed, lookahead)
        if algorithm == "builtin" and name in texts:
            with pytest.raises(NotComputable):
                engine.digests(prompt["tokens"], request_of(prompt))
            continue
        hashes = engine.digests(prompt["tokens"], request_of(prompt))
        assert (len(hashes), digest(hashes)) == (count, expected), (
            algorithm,
            seed,
            block_size,
            lookahead,
            name,
        )
        words = engine.words(prompt["tokens"], request_of(prompt))
        assert words == [int.from_bytes(each, "big") & (1 << 64) - 1 for each in hashes]


@pytest.mark.parametrize("version", sorted({row[0] for row in recorded("sglang")}))
def test_sglang(version: str) -> None:
    for row in recorded("sglang"):
        if row[0] != version:
            continue
        _, page_size, pairs, dynamo, name, count, expected = row
        prompt = dict(PROMPTS["sglang"][name])
        words = Sglang(version, page_size, pairs, dynamo).words(prompt.pop("tokens"), **prompt)
        assert (len(words), digest([word.to_bytes(8, "big") for word in words])) == (count, expected), row


def test_the_recording_covers_every_algorithm_and_change() -> None:
    rows = recorded("vllm")
    assert len(rows) > 900
    algorithms = {row[1] for row in rows}
    assert algorithms == {
        "sha256",
        "sha256_cbor",
        "xxhash",
        "xxhash_cbor",
        "sha256_cbor_64bit",
        "builtin",
    }
    assert len(recorded("sglang")) > 300
