"""`kvlens hash`: block hashes of a prompt's token ids, as an engine computes them, or content hashes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from pipeline.cli.failures import Failure, reading, warn
from pipeline.cli.groups import examples
from pipeline.cli.numbers import Whole
from schemas.hashing import sglang as sglang_hashing
from schemas.hashing import vllm as vllm_hashing
from schemas.hashing.content import SCHEME, Content
from schemas.hashing.errors import NotComputable
from schemas.hashing.sglang import Sglang
from schemas.hashing.versions import release
from schemas.hashing.vllm import ALGORITHMS, Algorithm, Vllm
from schemas.hashing.vllm_keys import Item, Lora, Request


class _Prompt(msgspec.Struct, forbid_unknown_fields=True):
    """FILE as an object, instead of a list of token ids."""

    token_ids: list[int]
    lora_name: str | None = None
    lora_path: str | None = None
    lora_id: int | None = None
    cache_salt: str | None = None
    items: list[Item] = []
    extra_key: str | None = None


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The options that say how to hash."""

    vllm: str | None
    sglang: str | None
    block_size: int | None
    algorithm: str | None
    key_file: str | None
    seed: str | None
    lookahead: int | None
    pairs: bool
    dynamo: bool


@click.command(
    epilog=examples(
        "kvlens hash prompt.json --vllm 0.31.0",
        "kvlens hash prompt.json --vllm 0.28.0 --algorithm sha256_cbor --seed 0",
        "kvlens hash prompt.json --sglang 0.5.23 --block-size 64",
        "kvlens hash prompt.json --vllm 0.31.0 --model qwen3   # asks the index",
        "kvlens hash prompt.json --algorithm content --key-file content.key",
    )
)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--vllm", "vllm", metavar="VERSION", help="Hash like this version of vLLM.")
@click.option("--sglang", "sglang", metavar="VERSION", help="Hash like this version of SGLang.")
@click.option(
    "--block-size", type=Whole(1), help="Tokens per block. By default 16; for SGLang 1, its page size."
)
@click.option(
    "--algorithm",
    type=click.Choice([*ALGORITHMS, SCHEME]),
    metavar="NAME",
    help=f"vLLM's --prefix-caching-hash-algo: {', '.join(ALGORITHMS)}; by default sha256. Or content: content"
    " hashes, of whatever engine.",
)
@click.option(
    "--key-file",
    type=click.Path(dir_okay=False),
    help="For content hashes: the connectors' content_key_file.",
)
@click.option("--seed", help="PYTHONHASHSEED of the vLLM engine.")
@click.option(
    "--lookahead",
    type=Whole(0),
    help="vLLM 0.33 with speculative decoding: tokens behind a block that its hash covers.",
)
@click.option("--pairs", is_flag=True, help="SGLang with EAGLE: it caches pairs of tokens.")
@click.option("--dynamo", is_flag=True, help="SGLang's events have the format dynamo.")
@click.option("--model", help="Print a question for `kvlens index` about this model.")
def hash(file: str, model: str | None, **options: Any) -> None:
    """Print the block hashes of a prompt's token ids, one a line, as the engine's events have them.

    FILE is JSON, - for standard input: a list of token ids, or an object with token_ids and, where the engine
    hashes them, lora_name, lora_path, lora_id, cache_salt, items ([identifier, offset, length] of each) and
    extra_key (SGLang). Nothing but the hashes leaves this process.
    """
    asked = _Asked(**options)
    _require_sense(asked)
    prompt = _read(file)
    size = asked.block_size or (1 if asked.sglang else 16)
    try:
        words = _words(prompt, size, asked)
    except NotComputable as error:
        raise Failure(str(error)) from error
    if (said := _beyond(asked.vllm, asked.sglang)) is not None:
        warn(said)
    unit = "page" if asked.sglang else "block"
    _show(words, model, f"{len(prompt.token_ids)} tokens fill no {unit} of {size}")


def _require_sense(asked: _Asked) -> None:
    """Raise UsageError where options do not go together."""
    of_vllm = asked.seed is not None or asked.lookahead is not None
    if asked.algorithm == SCHEME:
        if asked.vllm or asked.sglang or of_vllm or asked.pairs or asked.dynamo:
            raise click.UsageError("content hashes are of no engine: only --block-size and --key-file count")
        return
    if asked.key_file is not None:
        raise click.UsageError("--key-file is for --algorithm content")
    if (asked.vllm is None) == (asked.sglang is None):
        raise click.UsageError("give one of --vllm and --sglang, with the engine's version")
    if asked.sglang is not None and (asked.algorithm is not None or of_vllm):
        raise click.UsageError("--algorithm, --seed and --lookahead are vLLM's")
    if asked.vllm is not None and (asked.pairs or asked.dynamo):
        raise click.UsageError("--pairs and --dynamo are SGLang's")


def _words(prompt: _Prompt, size: int, asked: _Asked) -> list[int]:
    """Return the hashes as an engine computes them, or content hashes. Raises NotComputable, Failure."""
    if asked.algorithm == SCHEME:
        with reading(asked.key_file):
            key = b"" if asked.key_file is None else Path(asked.key_file).read_bytes().strip()
        return Content(size, key).words(prompt.token_ids, _request(prompt))
    if asked.vllm is not None:
        algorithm = cast(Algorithm, asked.algorithm or "sha256")
        engine = Vllm(asked.vllm, size, algorithm, asked.seed, asked.lookahead or 0)
        return engine.words(prompt.token_ids, _request(prompt))
    pages = Sglang(asked.sglang or "", size, asked.pairs, asked.dynamo)
    return pages.words(prompt.token_ids, salt=prompt.cache_salt, extra_key=prompt.extra_key)


def _beyond(vllm: str | None, sglang: str | None) -> str | None:
    """Return a warning about a version newer than the last one that was checked; None for others."""
    for engine, version, newest in (
        ("vLLM", vllm, vllm_hashing.NEWEST),
        ("SGLang", sglang, sglang_hashing.NEWEST),
    ):
        if version is not None and release(version) > newest:
            looked_at = ".".join(map(str, newest))
            return (
                f"{engine} {version} is newer than {looked_at}, the last that was looked at; "
                "taken to hash like that"
            )
    return None


def _show(words: list[int], model: str | None, otherwise: str) -> None:
    if not words:
        warn(f"{otherwise}, so there is no hash")
    if model is not None:
        click.echo(json.dumps({"model_name": model, "block_hashes": words}))
    else:
        click.echo("".join(f"{word}\n" for word in words), nl=False)


def _read(file: str) -> _Prompt:
    """Return the prompt of a file; no message quotes the content. Raises Failure."""
    try:
        with reading(file), click.open_file(file, "rb") as opened:
            read = msgspec.json.decode(opened.read(), type=list[int] | _Prompt)
    except msgspec.ValidationError as error:
        raise Failure(f"{file}: not a prompt: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Failure(f"{file}: not JSON") from None
    return _Prompt(read) if isinstance(read, list) else read


def _request(prompt: _Prompt) -> Request:
    adapter = None
    if prompt.lora_name is not None or prompt.lora_id is not None:
        adapter = Lora(prompt.lora_name or "", prompt.lora_path, prompt.lora_id)
    return Request(adapter, prompt.cache_salt, sorted(prompt.items, key=lambda item: item.offset))
