"""What nobody outside an engine can hash is refused, with what is missing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from schemas.hashing.errors import NotComputable
from schemas.hashing.sglang import Sglang
from schemas.hashing.vllm import Vllm
from schemas.hashing.vllm_keys import Lora, Request
from tests.support.checkout import ROOT


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"version": "0.28.0"}, "PYTHONHASHSEED"),
        ({"version": "0.31.0", "algorithm": "xxhash"}, "PYTHONHASHSEED"),
        ({"version": "0.12.0", "algorithm": "xxhash", "seed": "0"}, "xxhash in vLLM 0.12.0"),
        ({"version": "0.9.2", "algorithm": "sha256", "seed": "0"}, "sha256 in vLLM 0.9.2"),
        ({"version": "0.10.1", "algorithm": "builtin", "seed": "0"}, "builtin in vLLM 0.10.1"),
        ({"version": "0.31.0", "algorithm": "md5"}, "unknown algorithm"),
        ({"version": "newest"}, "not a version"),
        ({"version": "0.32.0", "lookahead": 1}, "behind a block"),
        ({"version": "0.31.0", "block_size": 0}, "one token or more"),
    ],
)
def test_of_an_engine(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(NotComputable, match=why):
        Vllm(**settings)


@pytest.mark.parametrize(("version", "why"), [("0.10.2", "number"), ("0.31.0", "path")])
def test_an_adapter_of_which_too_little_is_said(version: str, why: str) -> None:
    with pytest.raises(NotComputable, match=why):
        Vllm(version, 4, seed="0").digests([1, 2, 3, 4], Request(Lora("sql")))


@pytest.mark.parametrize("tokens", [[-1], [2**63], [2**32]])
def test_token_ids_that_sglang_cannot_hash(tokens: list[int]) -> None:
    with pytest.raises(NotComputable, match="token id"):
        Sglang("0.5.20").words(tokens)


def test_sglang_formats_by_version() -> None:
    with pytest.raises(NotComputable, match="dynamo"):
        Sglang("0.5.21", dynamo=True)
    assert len(Sglang("0.5.23").words([2**32])) == 1


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor"])
def test_arrays_of_numbers_count_as_lists(algorithm: Any) -> None:
    engine = Vllm("0.31.0", 4, algorithm)
    assert engine.words(np.arange(12)) == engine.words(range(12)) == engine.words(list(range(12)))


def test_it_needs_the_standard_library_alone() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from schemas.hashing.vllm import Vllm\n"
        "from schemas.hashing.sglang import Sglang\n"
        "sys.exit(Vllm('0.31.0', 4).words(range(4)) == Sglang('0.5.23', 4).words(range(4)))"
    )
    # -S: no installed package can be imported.
    subprocess.run([sys.executable, "-I", "-S", "-c", program, str(ROOT)], check=True, timeout=60)
