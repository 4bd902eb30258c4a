from __future__ import annotations

import pytest

from connectors.scrape.counters import PageUnreadable, parse_engine_metrics
from schemas.events import EngineCounters

TWO_RANKS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="qwen"} 3.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="qwen"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="qwen"} 0.5
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="qwen"} 1.2345678e+07
vllm:prefix_cache_queries_total{engine="1",model_name="qwen"} 22.0
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{engine="0",model_name="qwen"} 1.79e+09
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="qwen"} 6.0
vllm:prefix_cache_hits_total{engine="1",model_name="qwen"} 11.0
# TYPE vllm:external_prefix_cache_queries_total counter
vllm:external_prefix_cache_queries_total{engine="0",model_name="qwen"} 40.0
# TYPE vllm:external_prefix_cache_hits_total counter
vllm:external_prefix_cache_hits_total{engine="0",model_name="qwen"} 4.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="27381",sliding_window="None"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="27380",sliding_window="None"} 1.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="qwen"} 0.0
"""


def test_each_rank_gets_its_own_figures() -> None:
    assert parse_engine_metrics(TWO_RANKS) == {
        0: EngineCounters(12_345_678, 6, 40, 4, 27381, 16, 0.25),
        1: EngineCounters(22, 11, None, None, 27380, 16, 0.5),
    }


def test_older_names_without_rank_belong_to_rank_0() -> None:
    page = """\
vllm:gpu_prefix_cache_queries{model_name="m"} 100.0
vllm:gpu_prefix_cache_hits{model_name="m"} 40.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.75
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0
"""
    assert parse_engine_metrics(page) == {0: EngineCounters(100, 40, None, None, 1000, 16, 0.75)}


def test_newest_name_wins_where_both_are_exported() -> None:
    page = """\
vllm:gpu_prefix_cache_queries_total{engine="0"} 7.0
vllm:prefix_cache_queries_total{engine="0"} 9.0
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:gpu_cache_usage_perc{engine="0"} 0.1
"""
    assert parse_engine_metrics(page) == {0: EngineCounters(prefix_cache_queries=9, kv_cache_usage=0.5)}


def test_absent_and_senseless_figures_are_none() -> None:
    page = """\
vllm:prefix_cache_queries_total{engine="0"} NaN
vllm:prefix_cache_hits_total{engine="0"} 5
vllm:kv_cache_usage_perc{engine="0"} +Inf
vllm:cache_config_info{engine="0",num_gpu_blocks="None",block_size="16"} 1
vllm:prefix_cache_hits_total{engine="prefill"} 5
"""
    assert parse_engine_metrics(page) == {0: EngineCounters(prefix_cache_hits=5, block_size=16)}


@pytest.mark.parametrize(
    "page", ["", "\n\n", "process_cpu_seconds_total 3.5\n", "sglang:num_running_reqs 3\n"]
)
def test_page_that_knows_nothing_gives_nothing(page: str) -> None:
    assert parse_engine_metrics(page) == {}


def test_page_of_another_format_is_refused() -> None:
    with pytest.raises(PageUnreadable):
        parse_engine_metrics('vllm:prefix_cache_hits_total{engine="0" 5\n')
    assert parse_engine_metrics("<html>not found</html>") == {}
