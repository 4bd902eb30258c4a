"""Run the engines' own hashing on `cases.py`, and write what it gave to vllm.json and sglang.json.

    python record.py DIRECTORY...

Each directory is an unpacked wheel, named as the wheel begins (`vllm-0.31.0`, `sglang-0.5.23`). README.md
says what Python it needs. What the modules import of torch and of the rest of the engine is stood in for by
empty modules; the functions that hash are the engine's.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from array import array
from importlib.machinery import ModuleSpec
from itertools import pairwise, product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from cases import BLOCK_SIZES, PAGE_SIZES, SEEDS, sglang_prompts, vllm_prompts

OWN = {
    "vllm": ("vllm.utils.hashing", "vllm.v1.core.kv_cache_utils"),
    "sglang": (
        "sglang.srt.disaggregation.kv_events",
        "sglang.srt.mem_cache.cpp_utils.native_hash",
        "sglang.srt.mem_cache.events",
        "sglang.srt.mem_cache.hicache_storage",
        "sglang.srt.mem_cache.utils",
    ),
}
"""Modules that run as they are; all others of the engine, and what is not installed, are stand-ins."""


class _Anything:
    """A class, function, logger or type of a module that is stood in for."""

    def __init__(self, *_args: object, **_named: object) -> None:
        pass

    def __class_getitem__(cls, _item: object) -> type[_Anything]:
        return cls

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args, **_named: None


class _StandIn(ModuleType):
    __path__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (_Anything,), {})
        setattr(self, name, made)
        return made


class _Finder:
    """Finds the engine's hashing modules in the wheel, and stand-ins for everything else that is missing."""

    def __init__(self, engine: str, root: Path) -> None:
        self._engine, self._root = engine, root

    def find_spec(self, name: str, _path: object, _target: object = None) -> ModuleSpec | None:
        top = name.partition(".")[0]
        if name in OWN[self._engine]:
            file = self._root / (name.replace(".", "/") + ".py")
            if file.exists():
                return importlib.util.spec_from_file_location(name, file)
        if top == self._engine or top in ("torch", "triton", "pydantic", "zmq", "psutil", "numpy"):
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, _module: ModuleType) -> None:
        pass


def _functions_of(file: Path, names: tuple[str, ...]) -> dict[str, Any]:
    """Return functions of a module too large to import, as its source has them."""
    import ast
    import pickle

    import cbor2

    tree = ast.parse(file.read_text())
    wanted = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    space: dict[str, Any] = {"hashlib": hashlib, "pickle": pickle, "cbor2": cbor2, "Any": Any}
    exec(compile(ast.Module(wanted, []), str(file), "exec"), space)
    return {name: space[name] for name in names if name in space}


def _vllm(root: Path, version: str) -> list[dict[str, Any]]:
    names = ("sha256", "sha256_cbor", "sha256_cbor_64bit", "xxhash", "xxhash_cbor")
    old = root / "vllm/utils/__init__.py"
    if (root / "vllm/utils/hashing.py").exists():
        import vllm.utils.hashing as hashing

        functions = {name: getattr(hashing, name) for name in names if hasattr(hashing, name)}
    else:
        functions = _functions_of(old, names)
        stand_in = _StandIn("vllm.utils")
        for name, function in functions.items():
            setattr(stand_in, name, function)
        sys.modules["vllm.utils"] = stand_in
    import vllm.v1.core.kv_cache_utils as engine

    if not hasattr(engine, "init_none_hash"):
        functions["builtin"] = hash

    seed = os.environ.get("PYTHONHASHSEED")
    if seed is None:  # where it is random, there is nothing to record
        fixed = hasattr(engine, "DEFAULT_NONE_HASH_SEED")
        functions = {name: each for name, each in functions.items() if fixed and name.startswith("sha256")}
    functions = {name: each for name, each in functions.items() if not _too_large(each)}
    rows = []
    for (algorithm, function), block_size in product(functions.items(), BLOCK_SIZES):
        if hasattr(engine, "init_none_hash"):
            engine.init_none_hash(function)
        for name, prompt in vllm_prompts().items():
            for lookahead in (0, 1, 3) if tuple(map(int, version.split("."))) >= (0, 33, 0) else (0,):
                if lookahead and name == "long":
                    continue
                hashes = _vllm_hashes(engine, function, block_size, prompt, lookahead)
                rows.append([version, algorithm, seed, block_size, lookahead, name, *_shown(hashes)])
    return rows


def _vllm_hashes(
    engine: Any, function: Any, block_size: int, prompt: dict[str, Any], ahead: int
) -> list[Any]:
    tokens, items, lora = prompt["tokens"], prompt.get("items", []), prompt.get("lora")
    positions = [SimpleNamespace(offset=offset, length=length) for _, offset, length in items]
    # As many objects as there are items, as in the engine: pickle writes the same object once.
    identifiers = [each.encode().decode() for each, _, _ in items]
    request = SimpleNamespace(
        block_hashes=[],
        num_tokens=len(tokens),
        all_token_ids=tokens,
        cache_salt=prompt.get("salt"),
        prompt_embeds=None,
        lora_request=lora
        and SimpleNamespace(lora_name=lora["name"], lora_path=lora["path"], lora_int_id=lora["number"]),
        mm_positions=positions,
        mm_hashes=identifiers,
        mm_features=[
            SimpleNamespace(identifier=identifier, mm_position=position)
            for identifier, position in zip(identifiers, positions, strict=True)
        ],
    )
    if hasattr(engine, "get_request_block_hasher"):
        more = (ahead,) if ahead else ()
        return list(engine.get_request_block_hasher(block_size, function, *more)(request))
    return list(engine.hash_request_tokens(function, block_size, request))


def _too_large(function: Any) -> bool:
    """Tell whether hashes are numbers of 256 bits, which get into no event."""
    value = function(("x",))
    return isinstance(value, int) and value.bit_length() > 64


def _shown(hashes: list[Any]) -> tuple[int, str]:
    """Return how many there are, and a digest of all: of bytes whole, of numbers eight bytes each."""
    values = [getattr(each, "hash_value", each) for each in hashes]
    whole = [v if isinstance(v, bytes) else (v & (1 << 64) - 1).to_bytes(8, "big") for v in values]
    return len(whole), hashlib.sha256(b"".join(whole)).hexdigest()[:32]


def _compiled_hash(root: Path) -> None:
    """Build the engine's C++ for the module that loads it."""
    from pybind11 import get_include

    source = root / "sglang/srt/mem_cache/cpp_utils/hash_binding.cpp"
    target = root / f"hicache_hash_cpp{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    if not target.exists():
        import sysconfig

        flags = ["-O2", "-w", "-std=c++17", "-shared", "-fPIC", "-DTORCH_EXTENSION_NAME=hicache_hash_cpp"]
        include = [f"-I{get_include()}", f"-I{sysconfig.get_path('include')}"]
        subprocess.run(["g++", *flags, *include, str(source), "-o", str(target), "-lcrypto"], check=True)
    sys.path.insert(0, str(root))
    import hicache_hash_cpp
    import sglang.srt.mem_cache.cpp_utils.native_hash as native

    native._load_native_hash_module = lambda: hicache_hash_cpp


class _Key(list):
    """A radix key, as far as hashing looks at it."""

    def __init__(self, tokens: list[int], pairs: bool, extra_key: str | None, salt: str | None) -> None:
        units = list(pairwise(tokens)) if pairs else tokens
        super().__init__(units)
        self.token_ids, self.is_bigram = array("q", tokens), pairs
        self.extra_key, self.cache_salt = extra_key, salt


def _sglang(root: Path, version: str) -> list[dict[str, Any]]:
    if (root / "sglang/srt/mem_cache/cpp_utils/hash_binding.cpp").exists():
        _compiled_hash(root)
    number = tuple(map(int, version.split(".")[:3]))
    rows = []
    formats = (False, True) if number >= (0, 5, 22) else (False,)
    for page_size, pairs, dynamo in product(PAGE_SIZES, (False, True), formats):
        for name, prompt in sglang_prompts().items():
            if name == "wide" and number < (0, 5, 23):
                continue
            words = _sglang_words(number, page_size, pairs, dynamo, prompt)
            rows.append([version, page_size, pairs, dynamo, name, *_shown(words)])
    return rows


def _sglang_words(
    number: tuple[int, ...], page_size: int, pairs: bool, dynamo: bool, prompt: dict[str, Any]
) -> list[int]:
    length = len(prompt["tokens"]) - pairs
    tokens = prompt["tokens"][: length // page_size * page_size + pairs]
    key = _Key(tokens, pairs, prompt.get("extra_key"), prompt.get("salt"))
    if number < (0, 5, 12):
        from sglang.srt.mem_cache.hicache_storage import get_hash_str, hash_str_to_int64

        digests, parent = [], None
        for start in range(0, len(key), page_size):
            parent = get_hash_str(list.__getitem__(key, slice(start, start + page_size)), parent)
            digests.append(parent)
        return [hash_str_to_int64(each) for each in digests]
    import sglang.srt.mem_cache.utils as utils

    root = SimpleNamespace(parent=None, key=_Key([], pairs, None, None), hash_value=[], event_hash_value=None)
    node = SimpleNamespace(parent=root, key=key, hash_value=None, event_hash_value=None)
    compute = getattr(utils, "compute_node_event_hash_values", utils.compute_node_hash_values)
    if number < (0, 5, 22):
        return [utils.hash_str_to_int64(each) for each in compute(node, page_size)]
    import sglang.srt.mem_cache.events as events

    names = getattr(events, "KvEventLoraNames", events.LoRANameTable)()
    if key.extra_key and hasattr(names, "_adapter_names"):
        names._names[key.extra_key] = "sql"
    recorder = events.KVCacheEventRecorder(
        enabled=True, page_size=page_size, dynamo_format=dynamo, lora_names=names
    )
    recorder.record_store(node)
    return [each for event in recorder.take() for each in event.block_hashes]


def main() -> None:
    here = Path(__file__).parent
    if len(sys.argv) == 3 and sys.argv[1] == "--one":
        root = Path(sys.argv[2])
        engine, version = root.name.split("-")
        sys.meta_path.insert(0, _Finder(engine, root))
        rows = _vllm(root, version) if engine == "vllm" else _sglang(root, version)
        sys.stdout.write(json.dumps(rows))
        return
    written: dict[str, list[Any]] = {"vllm": [], "sglang": []}
    for root in map(Path, sys.argv[1:]):
        engine = root.name.split("-")[0]
        for seed in SEEDS if engine == "vllm" else (None,):
            environment = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"}
            if seed is not None:
                environment["PYTHONHASHSEED"] = seed
            command = [sys.executable, "-B", __file__, "--one", str(root)]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            written[engine] += json.loads(done.stdout)
    for engine, rows in written.items():
        if rows:
            lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
            (here / f"{engine}.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
