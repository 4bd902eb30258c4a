"""`kvlens hash`: the hashes of the library, and questions that the index takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipeline.cli.main import kvlens
from pipeline.index.questions.chains import hashes_of
from pipeline.index.questions.question import parsed
from schemas.hashing.content import Content
from schemas.hashing.sglang import Sglang
from schemas.hashing.vllm import Vllm
from schemas.hashing.vllm_keys import Item, Lora, Request

TOKENS = list(range(1000, 1070))


def run(prompt: object, *arguments: str) -> Result:
    text = prompt if isinstance(prompt, str) else json.dumps(prompt)
    return CliRunner().invoke(kvlens, ["hash", "-", *arguments], input=text)


def printed(prompt: object, *arguments: str) -> list[int]:
    result = run(prompt, *arguments)
    assert result.exit_code == 0, result.output
    return [int(line) for line in result.stdout.splitlines()]


def test_vllm() -> None:
    assert printed(TOKENS, "--vllm", "0.31.0") == Vllm("0.31.0").words(TOKENS)
    options = ("--algorithm", "sha256_cbor", "--seed", "0", "--block-size", "32")
    expected = Vllm("0.28.0", 32, "sha256_cbor", "0").words(TOKENS)
    assert printed(TOKENS, "--vllm", "0.28.0", *options) == expected
    assert printed(TOKENS, "--vllm", "0.33.0", "--lookahead", "1") == Vllm("0.33.0", lookahead=1).words(
        TOKENS
    )


def test_what_is_hashed_besides_tokens() -> None:
    prompt = {
        "token_ids": TOKENS,
        "lora_name": "sql",
        "lora_path": "/adapters/sql",
        "cache_salt": "s",
        "items": [["b", 40, 5], ["a", 3, 20]],
    }
    request = Request(Lora("sql", "/adapters/sql"), "s", [Item("a", 3, 20), Item("b", 40, 5)])
    assert printed(prompt, "--vllm", "0.31.0") == Vllm("0.31.0").words(TOKENS, request)


def test_sglang() -> None:
    prompt = {"token_ids": TOKENS, "cache_salt": "s", "extra_key": "k"}
    expected = Sglang("0.5.23", 16, pairs=True, dynamo=True).words(TOKENS, salt="s", extra_key="k")
    assert printed(prompt, "--sglang", "0.5.23", "--block-size", "16", "--pairs", "--dynamo") == expected
    assert printed(TOKENS, "--sglang", "0.5.15") == Sglang("0.5.15").words(TOKENS)


def test_content_hashes(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"a key of the fleet\n")
    assert printed(TOKENS, "--algorithm", "content") == Content(16).words(TOKENS)
    keyed = ("--algorithm", "content", "--key-file", str(key), "--block-size", "32")
    assert printed(TOKENS, *keyed) == Content(32, b"a key of the fleet").words(TOKENS)
    prompt = {"token_ids": TOKENS, "lora_name": "sql", "cache_salt": "s", "items": [["a", 3, 20]]}
    request = Request(Lora("sql"), "s", [Item("a", 3, 20)])
    assert printed(prompt, "--algorithm", "content") == Content(16).words(TOKENS, request)
    key.unlink()
    assert "No such file" in run(TOKENS, *keyed).output
    assert run(TOKENS, "--algorithm", "content", "--vllm", "0.31.0").exit_code == 2
    assert run(TOKENS, "--vllm", "0.31.0", "--key-file", str(key)).exit_code == 2


def test_a_question_for_the_index() -> None:
    result = run(TOKENS, "--vllm", "0.31.0", "--model", "qwen3")
    question = parsed(result.stdout.encode(), most_hashes=10)
    assert question.asked_model == "qwen3"
    assert hashes_of(question.chains[0]).tolist() == Vllm("0.31.0").words(TOKENS)


@pytest.mark.parametrize(
    ("prompt", "arguments", "code", "text"),
    [
        ([4711], (), 2, "one of --vllm and --sglang"),
        ([4711], ("--sglang", "0.5.23", "--seed", "0"), 2, "vLLM's"),
        ([4711], ("--vllm", "0.31.0", "--pairs"), 2, "SGLang's"),
        ([4711], ("--vllm", "0.28.0"), 1, "PYTHONHASHSEED"),
        ("[4711", ("--vllm", "0.31.0"), 1, "not JSON"),
        ({"token_ids": ["4711"]}, ("--vllm", "0.31.0"), 1, "not a prompt"),
        ({"tokens": [4711]}, ("--vllm", "0.31.0"), 1, "not a prompt"),
        ([1] * 15 + [2**64], ("--vllm", "0.31.0", "--algorithm", "sha256_cbor"), 1, "token id"),
    ],
)
def test_what_is_refused_says_why_and_repeats_no_token(
    prompt: object, arguments: tuple[str, ...], code: int, text: str
) -> None:
    result = run(prompt, *arguments)
    assert result.exit_code == code
    assert text in result.output
    assert "4711" not in result.output
    assert "Traceback" not in result.output


def test_fewer_tokens_than_a_block_are_told() -> None:
    for options, told in (
        (("--vllm", "0.31.0"), "3 tokens fill no block of 16, so there is no hash"),
        (("--vllm", "0.31.0", "--model", "m"), "3 tokens fill no block of 16, so there is no hash"),
        (("--sglang", "0.5.23", "--block-size", "4"), "3 tokens fill no page of 4, so there is no hash"),
        (("--algorithm", "content"), "3 tokens fill no block of 16, so there is no hash"),
    ):
        result = run([1, 2, 3], *options)
        assert result.exit_code == 0
        assert told in result.stderr
    assert run(TOKENS, "--vllm", "0.31.0").stderr == ""


def test_a_version_that_nobody_looked_at_is_told() -> None:
    for option, version, known in (("--vllm", "0.99", "0.33.0"), ("--sglang", "0.6.0", "0.5.23")):
        result = run(TOKENS, option, version)
        assert result.exit_code == 0
        assert f"{version} is newer than {known}" in result.stderr
