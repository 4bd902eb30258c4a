"""The /metrics page, read with a Prometheus parser."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from connectors.scrape.counters import parse_engine_metrics
from pipeline.simulator.metrics_endpoint import EngineFigures, MetricsEndpoint, Prefill, Prompts, exposition

RANKS = [
    EngineFigures(
        0, 1000, 400, 600, 200, 0.25, 16, 1200, Prefill(5, 1.5, 900), Prompts(300, 400, 50, 150, 70)
    ),
    EngineFigures(1, 7, 0, 0, 0, 0.0, 16, 1200),
]


def test_every_figure_is_served_per_rank() -> None:
    endpoint = MetricsEndpoint({"sim-0": lambda: exposition("m", RANKS)})
    try:
        with urllib.request.urlopen(endpoint.url("sim-0"), timeout=60) as answer:
            text = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(endpoint.url("sim-1"), timeout=60)
    finally:
        endpoint.close()
    counted = parse_engine_metrics(text).ranks[0]
    assert (counted.computed_tokens, counted.reloaded_tokens) == (300, 50)
    assert (counted.transferred_tokens, counted.generation_tokens) == (150, 70)
    samples = {
        (sample.name, sample.labels["engine"]): sample  # a histogram has one bucket
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "source" not in sample.labels
    }
    assert samples["vllm:prefix_cache_queries_total", "0"].value == 1000
    assert samples["vllm:prefix_cache_hits_total", "0"].value == 400
    assert samples["vllm:external_prefix_cache_queries_total", "0"].value == 600
    assert samples["vllm:external_prefix_cache_hits_total", "0"].value == 200
    assert samples["vllm:kv_cache_usage_perc", "0"].value == 0.25
    assert samples["vllm:request_prefill_time_seconds_sum", "0"].value == 1.5
    assert samples["vllm:request_prefill_kv_computed_tokens_sum", "0"].value == 900
    assert samples["vllm:request_prefill_kv_computed_tokens_count", "0"].value == 5
    assert ("vllm:request_prefill_time_seconds_sum", "1") not in samples
    assert samples["vllm:prefix_cache_queries_total", "1"].value == 7
    assert samples["vllm:prefix_cache_queries_total", "1"].labels["model_name"] == "m"
    config = samples["vllm:cache_config_info", "1"]
    assert (config.value, config.labels["num_gpu_blocks"], config.labels["block_size"]) == (1.0, "1200", "16")


def test_a_port_in_use_is_told() -> None:
    endpoint = MetricsEndpoint({})
    try:
        port = int(endpoint.url("x").split(":")[2].split("/")[0])
        with pytest.raises(OSError, match=f"cannot serve metrics on 127.0.0.1:{port}"):
            MetricsEndpoint({}, port=port)
    finally:
        endpoint.close()
