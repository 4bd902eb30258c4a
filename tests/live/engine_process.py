"""A vLLM in this process, told what to do line by line. The engine's own Python runs this, without kvlens.

The first argument is a JSON object with `model` (a folder), `blocks`, `events_port`, `replay_port` and
`metrics_port`, and may have a `folder` by which engines share KV, and the engine's `kv_role`. Each line of
the standard input is a request, each line of the standard output an answer:

    {"hashes": [[token, ...], ...]}    the hashes of each prompt's whole blocks, as the engine announces them
    {"prompts": [[token, ...], ...], "tokens": 8}   so many tokens more after each of them, all at once
    {"reset": true}                    whether the prefix cache is empty now
    {"account": true}                  what the engine itself knows (`Engine.account`)

The scheduler runs in this process as well, so its pool can be read. Events leave by its own publisher.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

BLOCK_TOKENS = 32
"""The CPU's attention takes multiples of it."""
RUNNING = 3
HASHING = "sha256_cbor"


class Engine:
    """One engine, and what is told of it."""

    def __init__(self, options: dict[str, Any]) -> None:
        from prometheus_client import start_http_server
        from vllm import LLM
        from vllm.config import KVEventsConfig, KVTransferConfig

        shares = {}
        if "folder" in options:
            shares["kv_transfer_config"] = KVTransferConfig(
                kv_connector="ExampleConnector",
                kv_role=options["kv_role"],
                kv_connector_extra_config={"shared_storage_path": options["folder"]},
            )
        self._llm = LLM(
            model=options["model"],
            load_format="dummy",
            skip_tokenizer_init=True,
            enforce_eager=True,
            block_size=BLOCK_TOKENS,
            num_gpu_blocks_override=options["blocks"],
            max_num_seqs=RUNNING,
            enable_prefix_caching=True,
            prefix_caching_hash_algo=HASHING,
            disable_log_stats=False,
            kv_events_config=KVEventsConfig(
                enable_kv_cache_events=True,
                publisher="zmq",
                # It binds what has a star, and connects to anything else.
                endpoint=f"tcp://*:{options['events_port']}",
                replay_endpoint=f"tcp://*:{options['replay_port']}",
                topic="kv-events",
            ),
            **shares,
        )
        start_http_server(options["metrics_port"], addr="127.0.0.1")
        scheduler = self._llm.llm_engine.engine_core.engine_core.scheduler
        self._pool = scheduler.kv_cache_manager.block_pool
        self._counts = {"evicted": 0, "batches": 0, "looked_up": 0, "found": 0, "moved": 0}
        self._count_calls(self._pool, "_maybe_evict_cached_block", "evicted")
        self._count_calls(scheduler.kv_event_publisher, "publish", "batches")
        if shares:
            self._add_up_moved(scheduler.connector)

    def answer(self, request: dict[str, Any]) -> Any:
        """Do what a request says."""
        if "hashes" in request:
            return [self._hashes(prompt) for prompt in request["hashes"]]
        if "prompts" in request:
            return self._generate(request["prompts"], request["tokens"])
        if "reset" in request:
            return bool(self._llm.reset_prefix_cache())
        return self.account()

    def account(self) -> dict[str, Any]:
        """Return what the engine knows, none of it from events.

        `cached` rows are [group, hash, physical copies]. `unsaid` events wait for the next step. Since the
        start: copies `evicted`, `batches` published, tokens `looked_up` in the prefix cache, `found` there or
        `moved` from elsewhere, and what its own `counters` say, by name and source.
        """
        from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id

        return {
            "cached": [
                [
                    get_group_id(key),
                    _announced(get_block_hash(key)),
                    len(held) if isinstance(held, dict) else 1,
                ]
                for key, held in self._pool.cached_block_hash_to_block._cache.items()
            ],
            "unsaid": len(self._pool.kv_event_queue),
            "blocks": self._pool.num_gpu_blocks,
            "counters": _counters(),
            **self._counts,
        }

    def _hashes(self, prompt: list[int]) -> list[int | str]:
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core.kv_cache_utils import hash_block_tokens

        digest, parent, found = get_hash_fn_by_name(HASHING), None, []
        for end in range(BLOCK_TOKENS, len(prompt) + 1, BLOCK_TOKENS):
            parent = hash_block_tokens(digest, parent, prompt[end - BLOCK_TOKENS : end], None)
            found.append(_announced(parent))
        return found

    def _generate(self, prompts: list[list[int]], tokens: int) -> list[list[int]]:
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt

        sampling = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        given = [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts]
        answers = []
        for done in self._llm.generate(given, sampling, use_tqdm=False):
            self._counts["looked_up"] += len(done.prompt_token_ids)
            # Those that were moved are among them.
            self._counts["found"] += done.num_cached_tokens
            answers.append(list(done.outputs[0].token_ids))
        return answers

    def _count_calls(self, of: Any, name: str, count: str) -> None:
        """Count the calls of a method that do not return False."""
        original = getattr(of, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            returned = original(*arguments, **named)
            self._counts[count] += returned is not False
            return returned

        setattr(of, name, counted)

    def _add_up_moved(self, connector: Any) -> None:
        """Add up the tokens of each request that the scheduler takes from the connector."""
        original = connector.update_state_after_alloc

        def counted(request: Any, blocks: Any, tokens: int) -> Any:
            self._counts["moved"] += tokens
            return original(request, blocks, tokens)

        connector.update_state_after_alloc = counted


def _counters() -> dict[str, float]:
    """Return what vLLM's own metrics page says of tokens, by `name` or `name/source`."""
    from prometheus_client import REGISTRY

    found: dict[str, float] = {}
    for family in REGISTRY.collect():
        for sample in family.samples:
            if sample.name.startswith("vllm:") and sample.name.endswith("_total"):
                source = sample.labels.get("source")
                name = sample.name.removeprefix("vllm:").removesuffix("_total")
                key = f"{name}/{source}" if source else name
                found[key] = found.get(key, 0.0) + sample.value
    return found


def _announced(digest: Any) -> int | str:
    """Return a hash as events have it, bytes as hexadecimal digits."""
    from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

    value = maybe_convert_block_hash(digest)
    return value.hex() if isinstance(value, bytes) else int(value)


def main() -> None:
    # What libraries print goes to the standard error: answers have the standard output for themselves.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    engine = Engine(json.loads(sys.argv[1]))
    answers.write("true\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(engine.answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
