"""Serves each replica's counters at `/<replica>/metrics` as vLLM's Prometheus endpoint does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True)
class Prefill:
    """Totals of finished requests since the engine's start; those that ran at the same time count in full."""

    requests: int
    seconds: float
    tokens: int
    """Tokens of their prompts that no cache had."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """Where the tokens of prompts came from, and how many followed them, since the engine's start."""

    computed: int
    hit: int
    reloaded: int
    pulled: int
    """From another engine."""
    generated: int


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """What the endpoint shows for one rank; token counters since its start."""

    rank: int
    queries: int
    hits: int
    external_queries: int
    external_hits: int
    usage: float
    block_size: int
    num_gpu_blocks: int | None
    """None for an endless pool, which has no capacity to report."""
    prefill: Prefill | None = None
    """None where no time passes in the engine."""
    prompts: Prompts | None = None
    """None where they are not counted."""


_COUNTERS = (
    (
        "vllm:prefix_cache_queries_total",
        "Prefix cache queries, in terms of number of queried tokens.",
        "queries",
    ),
    ("vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", "hits"),
    (
        "vllm:external_prefix_cache_queries_total",
        "External prefix cache queries, in terms of number of queried tokens.",
        "external_queries",
    ),
    (
        "vllm:external_prefix_cache_hits_total",
        "External prefix cache hits, in terms of number of cached tokens.",
        "external_hits",
    ),
)


_HISTOGRAMS = (
    ("vllm:request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", "seconds"),
    (
        "vllm:request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        "tokens",
    ),
)
"""Shown with the last bucket only."""


def exposition(model: str, ranks: list[EngineFigures]) -> str:
    """Return the Prometheus text of one replica."""
    lines = []
    for name, meaning, field in _COUNTERS:
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} counter"]
        lines += [f"{name}{_labels(model, rank)} {float(getattr(rank, field))}" for rank in ranks]
    lines += _of_prompts(model, ranks)
    for name, meaning, field in _HISTOGRAMS:
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} histogram"]
        for rank in ranks:
            if rank.prefill is not None:
                labels, count = _labels(model, rank), float(rank.prefill.requests)
                lines.append(f'{name}_bucket{labels[:-1]},le="+Inf"}} {count}')
                lines.append(f"{name}_count{labels} {count}")
                lines.append(f"{name}_sum{labels} {float(getattr(rank.prefill, field))}")
    name = "vllm:kv_cache_usage_perc"
    lines += [f"# HELP {name} KV-cache usage. 1 means 100 percent usage.", f"# TYPE {name} gauge"]
    lines += [f"{name}{_labels(model, rank)} {rank.usage}" for rank in ranks]
    name = "vllm:cache_config_info"
    lines += [f"# HELP {name} Information of the LLMEngine CacheConfig", f"# TYPE {name} gauge"]
    for rank in ranks:
        labels = (
            f'block_size="{rank.block_size}",cache_dtype="auto",enable_prefix_caching="True",'
            f'engine="{rank.rank}",num_gpu_blocks="{rank.num_gpu_blocks}"'
        )
        lines.append(f"{name}{{{labels}}} 1.0")
    return "\n".join(lines) + "\n"


def _of_prompts(model: str, ranks: list[EngineFigures]) -> Iterator[str]:
    """Yield the lines of the counters by source, as vLLM has them since 0.32."""
    counted = [(rank, rank.prompts) for rank in ranks if rank.prompts is not None]
    by_source = {
        "vllm:prompt_tokens_by_source_total": {
            "local_compute": [each.computed for _, each in counted],
            "local_cache_hit": [each.hit for _, each in counted],
            "external_kv_transfer": [each.reloaded + each.pulled for _, each in counted],
        },
        "vllm:prompt_tokens_cached_by_source_total": {
            "device": [each.hit for _, each in counted],
            "host": [each.reloaded for _, each in counted],
            "p2p": [each.pulled for _, each in counted],
        },
    }
    for name, sources in by_source.items():
        yield from (f"# HELP {name} Number of prompt tokens by source.", f"# TYPE {name} counter")
        for source, figures in sources.items():
            for (rank, _), figure in zip(counted, figures, strict=True):
                yield f'{name}{_labels(model, rank)[:-1]},source="{source}"}} {float(figure)}'
    name = "vllm:generation_tokens_total"
    yield from (f"# HELP {name} Number of generation tokens processed.", f"# TYPE {name} counter")
    yield from (f"{name}{_labels(model, rank)} {float(each.generated)}" for rank, each in counted)


def _labels(model: str, rank: EngineFigures) -> str:
    return f'{{engine="{rank.rank}",model_name="{model}"}}'


class MetricsEndpoint:
    """An HTTP server on its own thread; port 0 takes a free one."""

    def __init__(
        self, replicas: Mapping[str, Callable[[], str]], host: str = "127.0.0.1", port: int = 0
    ) -> None:
        pages = {f"/{replica}/metrics": page for replica, page in replicas.items()}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = pages.get(self.path)
                body = b"not found\n" if page is None else page().encode()
                self.send_response(404 if page is None else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log no scrapes."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise OSError(error.errno, f"cannot serve metrics on {host}:{port}: {error.strerror}") from error
        self._server.daemon_threads = True
        self._base = f"http://{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def url(self, replica: str) -> str:
        """Return the address of a replica's page."""
        return f"{self._base}/{replica}/metrics"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
