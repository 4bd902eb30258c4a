"""What a metrics page says, and that nothing on it is more than a bounded reason."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, get_args

import msgspec
import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from connectors.scrape import counters as reader
from connectors.scrape.counters import (
    MAX_LINE_CHARACTERS,
    MAX_LINES,
    MAX_SAMPLES,
    MAX_SAMPLES_CHARACTERS,
    Page,
    PageUnreadable,
    parse_engine_metrics,
)
from connectors.scrape.figures import BOUNDS
from schemas.events import EngineCounters
from schemas.reasons import FigureRefusal, ScrapeFailure
from tests.support.calls import calls

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
    assert parse_engine_metrics(TWO_RANKS).ranks == {
        0: EngineCounters(12_345_678, 6, 40, 4, 27381, 16, 0.25),
        1: EngineCounters(22, 11, None, None, 27380, 16, 0.5),
    }


VLLM_SOURCES = """\
vllm:prefix_cache_queries_total{engine="1",model_name="tiny"} 66712.0
vllm:prefix_cache_hits_total{engine="1",model_name="tiny"} 33008.0
vllm:external_prefix_cache_queries_total{engine="1",model_name="tiny"} 33704.0
vllm:external_prefix_cache_hits_total{engine="1",model_name="tiny"} 23845.0
vllm:prompt_tokens_total{engine="1",model_name="tiny"} 65290.0
vllm:prompt_tokens_by_source_total{engine="1",model_name="tiny",source="local_compute"} 9859.0
vllm:prompt_tokens_by_source_total{engine="1",model_name="tiny",source="local_cache_hit"} 33008.0
vllm:prompt_tokens_by_source_total{engine="1",model_name="tiny",source="external_kv_transfer"} 22423.0
vllm:prompt_tokens_cached_total{engine="1",model_name="tiny"} 55431.0
vllm:prompt_tokens_cached_by_source_total{engine="1",model_name="tiny",source="device"} 33008.0
vllm:prompt_tokens_cached_by_source_total{engine="1",model_name="tiny",source="host"} 0.0
vllm:prompt_tokens_cached_by_source_total{engine="1",model_name="tiny",source="p2p"} 23845.0
vllm:prompt_tokens_cached_by_source_total{engine="1",model_name="tiny",source="disk"} 0.0
vllm:prompt_tokens_cached_by_source_total{engine="1",model_name="tiny",source="external_unspecified"} 0.0
vllm:generation_tokens_total{engine="1",model_name="tiny"} 2880.0
vllm:request_generation_tokens_sum{engine="1",model_name="tiny"} 0.0
"""
"""Of vLLM 0.33.0's own Prometheus logger, of an engine that pulled from another by NIXL."""


def test_vllm_says_where_prompts_came_from() -> None:
    said = parse_engine_metrics(VLLM_SOURCES).ranks[1]
    assert said == EngineCounters(
        66_712,
        33_008,
        33_704,
        23_845,
        computed_tokens=9_859,
        transferred_tokens=23_845,
        reloaded_tokens=0,
        generation_tokens=2_880,
    )


def test_a_store_that_does_not_say_what_it_is_transfers_and_tiers_of_the_engine_do_not() -> None:
    """The sums of `multi` (vLLM 0.33, CPU tier and NIXL), a part of them as if from a store, and a disk."""
    cached = {"device": 7, "host": 6_000, "p2p": 50_000, "disk": 480, "external_unspecified": 3_486}
    lines = [
        f'vllm:prompt_tokens_cached_by_source_total{{engine="0",source="{source}"}} {tokens}.0\n'
        for source, tokens in cached.items()
    ]
    external = 'vllm:prompt_tokens_by_source_total{engine="0",source="external_kv_transfer"} 59966.0\n'
    assert parse_engine_metrics("".join([*lines, external])).ranks == {
        0: EngineCounters(computed_tokens=0, transferred_tokens=53_486, reloaded_tokens=6_480)
    }
    before_0_32 = 'vllm:prompt_tokens_by_source_total{engine="0",source="local_compute"} 9.0\n'
    assert parse_engine_metrics(before_0_32).ranks == {0: EngineCounters(computed_tokens=9)}


SGLANG = """\
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{is_streaming="false",model_name="qwen"} 1000.0
sglang:prompt_tokens_total{is_streaming="true",model_name="qwen"} 500.0
# TYPE sglang:cached_tokens_total counter
sglang:cached_tokens_total{cache_source="device",model_name="qwen"} 600.0
sglang:cached_tokens_total{cache_source="host",model_name="qwen"} 30.0
sglang:cached_tokens_total{cache_source="storage_mooncake",model_name="qwen"} 7.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{is_streaming="false",model_name="qwen"} 20.0
sglang:generation_tokens_total{is_streaming="true",model_name="qwen"} 22.0
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{dp_rank="0",engine_type="unified",model_name="qwen",tp_rank="0"} 1030.0
sglang:max_total_num_tokens{dp_rank="1",engine_type="unified",model_name="qwen",tp_rank="4"} 2000.0
# TYPE sglang:page_size gauge
sglang:page_size{dp_rank="0",engine_type="unified",model_name="qwen",tp_rank="0"} 64.0
sglang:page_size{dp_rank="1",engine_type="unified",model_name="qwen",tp_rank="4"} 64.0
# TYPE sglang:token_usage gauge
sglang:token_usage{dp_rank="0",model_name="qwen",priority="",tp_rank="0"} 0.5
sglang:token_usage{dp_rank="0",model_name="qwen",priority="3",tp_rank="0"} 0.125
# TYPE sglang:hicache_host_total_tokens gauge
sglang:hicache_host_total_tokens{dp_rank="0",model_name="qwen",tp_rank="0"} 40960.0
"""
"""Written after the publisher's own code (`metrics_collector.py` of 0.5.23)."""


def test_sglang_says_capacities_by_rank_and_hits_for_all() -> None:
    assert parse_engine_metrics(SGLANG).ranks == {
        0: EngineCounters(
            prefix_cache_queries=1500,
            prefix_cache_hits=600,
            external_hits=37,
            reloaded_tokens=37,
            generation_tokens=42,
            capacity_blocks=16,
            block_size=64,
            kv_cache_usage=0.5,
            cpu_capacity_tokens=40960,
            unused_blocks=0,
        ),
        1: EngineCounters(capacity_blocks=31, block_size=64, unused_blocks=0),
    }


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # 0.5.3: one counter without a source
        (
            'sglang:prompt_tokens_total{m="q"} 9.0\nsglang:cached_tokens_total{m="q"} 4.0\n',
            EngineCounters(prefix_cache_queries=9, prefix_cache_hits=4, external_hits=0, reloaded_tokens=0),
        ),
        # 0.5.9: the page size is a label
        (
            'sglang:cache_config_info{num_pages="5",page_size="16"} 1.0\nsglang:max_total_num_tokens 95.0\n',
            EngineCounters(capacity_blocks=5, block_size=16, unused_blocks=0),
        ),
        # no page size: nobody knows how many blocks these tokens are
        ("sglang:max_total_num_tokens 95.0\n", None),
        ("sglang:max_total_num_tokens 95.0\nsglang:page_size 0.0\n", EngineCounters(block_size=0)),
        # hits of a tier alone
        (
            'sglang:cached_tokens_total{cache_source="host"} 4.0\n',
            EngineCounters(prefix_cache_hits=0, external_hits=4, reloaded_tokens=4),
        ),
        (
            'sglang:cached_tokens_total{cache_source="total"} 4.0\n',
            EngineCounters(None, 4, None, 0, reloaded_tokens=0),
        ),
    ],
)
def test_pages_of_other_sglangs(lines: str, expected: EngineCounters | None) -> None:
    assert parse_engine_metrics(lines).ranks == ({} if expected is None else {0: expected})


@pytest.mark.parametrize(
    ("backend", "blocks", "tokens", "refused"),
    [
        ("cpu", "161", 2_560, {}),
        ("disk", "161", None, {}),  # v1/simple_kv_offload: its blocks are of medium STORAGE then
        ("cpu", "0", 0, {}),
        ("cpu", "many", None, {"not_a_number": 1}),
        ("cpu", "9" * 15, None, {"too_large": 1}),
    ],
)
def test_vllm_says_the_capacity_of_its_simple_cpu_tier(
    backend: str, blocks: str, tokens: int | None, refused: dict[str, int]
) -> None:
    info = (
        f'backend="{backend}",capacity_blocks="{blocks}",engine="1",lazy_offload="false",page_cache="false"'
    )
    page = parse_engine_metrics(f"{TWO_RANKS}vllm:simple_kv_offload_info{{{info}}} 1.0\n")
    assert page.ranks[1] == EngineCounters(22, 11, None, None, 27380, 16, 0.5, cpu_capacity_tokens=tokens)
    assert page.ranks[0].cpu_capacity_tokens is None
    assert page.refused == refused


def test_cpu_blocks_of_no_size_are_no_tokens() -> None:
    info = 'vllm:simple_kv_offload_info{backend="cpu",capacity_blocks="161",engine="0"} 1.0\n'
    assert parse_engine_metrics(info).ranks == {}


VLLM_PREFILL = """\
# TYPE vllm:request_prefill_time_seconds histogram
vllm:request_prefill_time_seconds_bucket{engine="0",le="0.3",model_name="qwen"} 3.0
vllm:request_prefill_time_seconds_bucket{engine="0",le="+Inf",model_name="qwen"} 5.0
vllm:request_prefill_time_seconds_count{engine="0",model_name="qwen"} 5.0
vllm:request_prefill_time_seconds_sum{engine="0",model_name="qwen"} 1.75
vllm:request_prefill_kv_computed_tokens_bucket{engine="0",le="+Inf",model_name="qwen"} 5.0
vllm:request_prefill_kv_computed_tokens_count{engine="0",model_name="qwen"} 5.0
vllm:request_prefill_kv_computed_tokens_sum{engine="0",model_name="qwen"} 4096.0
"""
SGLANG_PREFILL = """\
# TYPE sglang:realtime_tokens_total counter
sglang:realtime_tokens_total{dp_rank="1",mode="prefill_compute",model_name="q",pp_rank="0",tp_rank="0"} 900.0
sglang:realtime_tokens_total{dp_rank="1",mode="prefill_cache",model_name="q",pp_rank="0",tp_rank="0"} 70.0
sglang:realtime_tokens_total{dp_rank="1",mode="decode",model_name="q",pp_rank="0",tp_rank="0"} 8.0
sglang:realtime_tokens_total{dp_rank="1",mode="prefill_compute",model_name="q",pp_rank="0",tp_rank="1"} 899.0
# TYPE sglang:%s counter
sglang:%s_total{category="%s",dp_rank="1",model_name="q",pp_rank="0",tp_rank="0"} 2.5
sglang:%s_total{category="forward_decode",dp_rank="1",model_name="q",pp_rank="0",tp_rank="0"} 99.0
sglang:%s_total{category="%s",dp_rank="1",model_name="q",pp_rank="0",tp_rank="1"} 2.4
sglang:%s_total{category="%s",dp_rank="1",model_name="q",pp_rank="0",priority="7",tp_rank="0"} 1.1
"""


def test_prefill_of_vllm_is_the_sum_of_its_histograms() -> None:
    assert parse_engine_metrics(VLLM_PREFILL).ranks == {
        0: EngineCounters(prefill_seconds=1.75, prefill_tokens=4096)
    }


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("forward_execution_seconds", "forward_extend"),
        ("gpu_execution_seconds", "forward_extend"),
        ("gpu_execution_seconds", "forward_prefill"),
    ],
)
def test_prefill_of_sglang_is_that_of_the_first_rank_of_its_passes(name: str, category: str) -> None:
    page = SGLANG_PREFILL % (name, name, category, name, name, category, name, category)
    assert parse_engine_metrics(page).ranks == {
        1: EngineCounters(prefill_seconds=2.5, prefill_tokens=900, computed_tokens=900)
    }


def test_older_names_without_rank_belong_to_rank_0() -> None:
    page = """\
vllm:gpu_prefix_cache_queries{model_name="m"} 100.0
vllm:gpu_prefix_cache_hits{model_name="m"} 40.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.75
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0
"""
    assert parse_engine_metrics(page).ranks == {0: EngineCounters(100, 40, None, None, 1000, 16, 0.75)}


def test_newest_name_wins_where_both_are_exported() -> None:
    page = """\
vllm:gpu_prefix_cache_queries_total{engine="0"} 7.0
vllm:prefix_cache_queries_total{engine="0"} 9.0
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:gpu_cache_usage_perc{engine="0"} 0.1
"""
    assert parse_engine_metrics(page).ranks == {0: EngineCounters(prefix_cache_queries=9, kv_cache_usage=0.5)}


def test_what_an_engine_does_not_know_yet_is_absent() -> None:
    page = """\
vllm:prefix_cache_hits_total{engine="0"} 5
vllm:cache_config_info{engine="0",num_gpu_blocks="None",block_size="16"} 1
"""
    assert parse_engine_metrics(page) == Page({0: EngineCounters(prefix_cache_hits=5, block_size=16)})


SEVERAL = """\
vllm:prefix_cache_queries_total{%(one)s} 100.0
vllm:prefix_cache_queries_total{%(other)s} 7.0
vllm:kv_cache_usage_perc{%(one)s} 0.5
vllm:kv_cache_usage_perc{%(other)s} 0.25
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000",%(one)s} 1.0
vllm:cache_config_info{block_size="16",num_gpu_blocks="%(blocks)s",%(other)s} 1.0
"""


def _of(queries: int, capacity: int | None) -> EngineCounters:
    return EngineCounters(queries, capacity_blocks=capacity, block_size=16, kv_cache_usage=0.5)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("one", "other", "blocks", "expected", "refused"),
    [
        # processes of one engine
        ('engine="0",pid="7"', 'engine="0",pid="8"', 1000, _of(107, 1000), 0),
        ('engine="0",pid="7"', 'engine="0",pid="8"', 900, _of(107, None), 1),
        # those of all ranks together, beside those of one
        ('engine="0"', 'pid="8"', 900, _of(100, 1000), 0),
        # two engines
        ('engine="0",model_name="a"', 'engine="0",model_name="b"', 1000, None, 4),
        # the same twice
        ('engine="0"', 'engine="0"', 1000, EngineCounters(capacity_blocks=1000, block_size=16), 2),
    ],
)  # fmt: skip
def test_several_samples_are_one_figure_by_what_it_means(
    one: str, other: str, blocks: int, expected: EngineCounters | None, refused: int, turned: bool
) -> None:
    lines = (SEVERAL % {"one": one, "other": other, "blocks": blocks}).splitlines()
    page = parse_engine_metrics("\n".join(reversed(lines) if turned else lines) + "\n")
    assert page.ranks == ({} if expected is None else {0: expected})
    assert page.refused == ({"ambiguous": refused} if refused else {})


def test_ranks_that_work_in_step_have_the_capacity_of_the_smallest() -> None:
    page = parse_engine_metrics("""\
sglang:max_total_num_tokens{dp_rank="0",tp_rank="0"} 6400.0
sglang:max_total_num_tokens{dp_rank="0",tp_rank="1"} 6336.0
sglang:page_size{dp_rank="0",tp_rank="0"} 64.0
sglang:page_size{dp_rank="0",tp_rank="1"} 64.0
sglang:token_usage{dp_rank="0",tp_rank="0"} 0.25
sglang:token_usage{dp_rank="0",tp_rank="1"} 0.375
""")
    assert page == Page(
        {0: EngineCounters(capacity_blocks=99, block_size=64, kv_cache_usage=0.375, unused_blocks=0)}
    )


def test_every_figure_has_a_bound() -> None:
    assert tuple(BOUNDS) == EngineCounters.__struct_fields__


QUERIES = 'vllm:prefix_cache_queries_total{engine="0"} %s\n'
USAGE = 'vllm:kv_cache_usage_perc{engine="0"} %s\n'
BLOCKS = 'vllm:cache_config_info{engine="0",num_gpu_blocks="%s"} 1\n'
SIZE = 'vllm:cache_config_info{engine="0",block_size="%s"} 1\n'
RANK = 'vllm:prefix_cache_queries_total{engine="%s"} 5\n'


@pytest.mark.parametrize(
    ("line", "number", "reason"),
    [
        (QUERIES, "NaN", "not_a_number"),
        (QUERIES, "+Inf", "not_a_number"),
        (QUERIES, "-1", "negative"),
        (QUERIES, "1e300", "too_large"),
        (QUERIES, str(2**53 + 2), "too_large"),
        (USAGE, "1e308", "too_large"),
        (USAGE, "1.01", "too_large"),
        (BLOCKS, str(10**30), "too_large"),
        (BLOCKS, "9" * 5000, "too_large"),
        (BLOCKS, str(2**32), "too_large"),
        (BLOCKS, "-5", "not_a_number"),
        (BLOCKS, "1.5", "not_a_number"),
        (BLOCKS, "\u0663", "not_a_number"),
        (SIZE, "5000000000", "too_large"),
        (RANK, "prefill", "bad_rank"),
        (RANK, "65536", "bad_rank"),
        (RANK, "9" * 5000, "bad_rank"),
    ],
)
def test_a_figure_that_no_engine_can_mean_costs_itself(line: str, number: str, reason: FigureRefusal) -> None:
    page = line % number + 'vllm:prefix_cache_hits_total{engine="0"} 5\n'
    assert parse_engine_metrics(page) == Page({0: EngineCounters(prefix_cache_hits=5)}, Counter([reason]))


@pytest.mark.parametrize(
    ("line", "number", "field"),
    [
        (QUERIES, 2**53, "prefix_cache_queries"),
        (USAGE, 1, "kv_cache_usage"),
        (BLOCKS, 2**32 - 1, "capacity_blocks"),
        (SIZE, 2**32 - 1, "block_size"),
    ],
)
def test_the_largest_number_of_each_kind_is_taken(line: str, number: int, field: str) -> None:
    given: dict[str, Any] = {field: number}
    assert parse_engine_metrics(line % number) == Page({0: EngineCounters(**given)})


@pytest.mark.parametrize(
    "page", ["", "\n\n", "process_cpu_seconds_total 3.5\n", "sglang:num_running_reqs 3\n", "# EOF\n"]
)
def test_page_that_knows_nothing_gives_nothing(page: str) -> None:
    assert parse_engine_metrics(page) == Page({})


def many_labels(count: int) -> str:
    labels = "".join(f'a{number}="",' for number in range(count))
    return f'vllm:prefix_cache_queries_total{{{labels}engine="0"}} 1\n'


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ('vllm:prefix_cache_hits_total{engine="0" 5\n', "not_prometheus"),
        (QUERIES % "five", "not_prometheus"),
        ("\n<!doctype html><title>Sign in</title>\n", "not_prometheus"),
        ('{"detail": "Not Found"}', "not_prometheus"),
        ("Not found", "not_prometheus"),
        ("\n" * (MAX_LINES + 1), "too_large"),
        (QUERIES % 1 * (MAX_SAMPLES + 1), "too_large"),
        (many_labels(MAX_LINE_CHARACTERS // 5), "too_large"),
        (many_labels(1_000) * 100, "too_large"),
    ],
    ids=["no end", "no number", "a login", "JSON", "a sentence", "lines", "samples", "one line", "all lines"],
)
def test_a_page_that_is_none_or_too_much_is_refused(page: str, reason: ScrapeFailure) -> None:
    with pytest.raises(PageUnreadable) as raised:
        parse_engine_metrics(page)
    assert raised.value.reason == reason
    assert len(str(raised.value)) < 100, "nothing of the page stands in the log"


@pytest.mark.parametrize(
    "page",
    [QUERIES % 1 * MAX_SAMPLES, many_labels(1_500) * 30, "\n" * MAX_LINES, "# " + "v" * (8 << 20)],
    ids=["samples", "labels", "lines", "characters"],
)
def test_the_worst_page_that_is_taken_takes_little(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser, which takes the square of a line, gets only what is read, and no more than may be."""
    handed: list[str] = []

    def parse(text: str) -> Iterator[Metric]:
        handed.extend(text.splitlines())
        return text_string_to_metric_families(text)

    monkeypatch.setattr(reader, "text_string_to_metric_families", parse)
    assert calls(partial(parse_engine_metrics, page)) < 3_000_000
    assert [line for line in handed if line] == [line for line in page.splitlines() if "vllm:" in line]
    assert len(handed) <= MAX_SAMPLES
    assert max(map(len, handed)) <= MAX_LINE_CHARACTERS
    assert sum(map(len, handed)) <= MAX_SAMPLES_CHARACTERS


LETTERS = '{}",=\\# \n\t\x00é9-eE+.naif_'


def test_whatever_is_on_a_page_a_record_can_hold_it() -> None:
    rng = random.Random(1)
    outcomes: Counter[str] = Counter()
    for _ in range(1_500):
        page = TWO_RANKS
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(page))
            page = (
                page[:at] + "".join(rng.choices(LETTERS, k=rng.randrange(3))) + page[at + rng.randrange(3) :]
            )
        try:
            found = parse_engine_metrics(page)
        except PageUnreadable as error:
            outcomes[error.reason] += 1
            continue
        outcomes.update(["read", *found.refused])
        for counters in found.ranks.values():
            encoded = msgspec.msgpack.encode(counters)
            assert msgspec.msgpack.decode(encoded, type=EngineCounters) == counters
    assert outcomes.keys() <= {"read", *get_args(FigureRefusal), *get_args(ScrapeFailure)}
    assert outcomes.keys() >= {"read", "not_prometheus", "not_a_number", "bad_rank"}
