"""A real vLLM as a process of its own, with its sockets and its metrics page on loopback."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.local.processes.ports import LOOPBACK
from schemas.discovery_settings import Replica, Role

PROGRAM = Path(__file__).with_name("engine_process.py")
MODEL = "tiny"
BLOCKS = 80
"""That it has; it never uses one of them."""
MAX_TOKENS = 640
"""Of a prompt with its answer. Three at once leave a quarter of the blocks to the cache."""
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 4096,
    "max_position_embeddings": MAX_TOKENS,
    "torch_dtype": "bfloat16",
}
"""Of a model without weights: the engine makes random ones."""
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the scheduler in the process that is asked for its pool
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONHASHSEED": "0",  # engines with the same one have the same hashes
}
START_SECONDS = 400.0
ANSWER_SECONDS = 120.0
TAIL = 2_000
"""Characters of its log in an error."""
NEW_TOKENS = 8
_KV_ROLES: dict[Role, str] = {"prefill": "kv_producer", "decode": "kv_consumer"}


class EngineFailed(Exception):
    """It ended, or does not answer; the text has the last lines of its log."""


class Shared(NamedTuple):
    """What an engine has in common with another one."""

    role: Role
    folder: Path
    """By which KV goes from one to the other: vLLM's ExampleConnector."""


class LiveEngine:
    """One vLLM."""

    def __init__(
        self,
        name: str,
        python: Path,
        directory: Path,
        free_port: Callable[[], int],
        shared: Shared | None = None,
    ) -> None:
        """`directory` gets the model and the log."""
        self.name = name
        self._shared = shared
        self.lives = 0
        self._python = python
        self._directory = directory
        self._events, self._replay, self._metrics = free_port(), free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def replica(self) -> Replica:
        return Replica(
            id=self.name,
            model=MODEL,
            endpoint=f"tcp://{LOOPBACK}:{self._events}",
            replay_endpoint=f"tcp://{LOOPBACK}:{self._replay}",
            metrics_url=f"http://{LOOPBACK}:{self._metrics}/metrics",
            role=self._shared.role if self._shared else "",
        )

    def start(self) -> None:
        """Return when it takes requests. Raises EngineFailed."""
        model = self._directory / "model"
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text(json.dumps(CONFIG))
        options = {
            "model": str(model),
            "blocks": BLOCKS,
            "events_port": self._events,
            "replay_port": self._replay,
            "metrics_port": self._metrics,
        }
        if self._shared is not None:
            options["folder"] = str(self._shared.folder)
            options["kv_role"] = _KV_ROLES[self._shared.role]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._python, "-I", PROGRAM, json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._directory,
                env={**os.environ, **ENVIRONMENT},
            )
        self._answer(START_SECONDS)
        self.lives += 1

    def hashes(self, prompts: Sequence[Sequence[int]]) -> list[list[int | str]]:
        """Return the hashes of the whole blocks of prompts."""
        found: list[list[int | str]] = self._ask({"hashes": prompts})
        return found

    def generate(self, prompts: Sequence[Sequence[int]], tokens: int = NEW_TOKENS) -> list[list[int]]:
        """Return so many tokens that come after each prompt."""
        found: list[list[int]] = self._ask({"prompts": prompts, "tokens": tokens})
        return found

    def reset(self) -> bool:
        """Empty the prefix cache; whether it did."""
        done: bool = self._ask({"reset": True})
        return done

    def account(self) -> dict[str, Any]:
        """Return what it knows of itself: `Engine.account` of the program."""
        found: dict[str, Any] = self._ask({"account": True})
        return found

    def kill(self) -> None:
        """End it at once, as a machine that fails would."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    @property
    def _log(self) -> Path:
        return self._directory / f"{self.name}.log"

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure("ended") from None
        return self._answer(ANSWER_SECONDS)

    def _answer(self, seconds: float) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        # An answer comes as one line; the wait is for its first byte.
        if not select.select([self._process.stdout], [], [], deadline - time.monotonic())[0]:
            raise self._failure(f"says nothing for {seconds:.0f} s")
        if not (line := self._process.stdout.readline()):
            raise self._failure("ended")
        return json.loads(line)

    def _failure(self, what: str) -> EngineFailed:
        said = self._log.read_text(errors="replace")[-TAIL:]
        return EngineFailed(f"{self.name} {what}: {said}")
