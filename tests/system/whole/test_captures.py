"""Eight captured engines at once, from sockets to tables: the tables say what the engines knew."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, groupby, zip_longest
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.inputs.captures import NAMES, captured_frames, captured_truth
from tests.system.browser.tabs import Open, serve

ERAS = {
    "sglang-0.5.15-array": ("sglang", "sglang-array-7"),
    "vllm-0.9.2-array-builtin-hash": ("", "array-6"),
    "vllm-0.16.0-array": ("vllm", "array-8"),
    "vllm-0.23.0-array-offload-cpu": ("vllm", "array-12"),
    "vllm-0.25.1-map-dp0": ("vllm", "map"),
    "vllm-0.25.1-map-dp1": ("vllm", "map"),
    "vllm-0.33.0-map": ("vllm", "map"),
    "vllm-0.33.0-map-hybrid-swa": ("vllm", "map"),
}
TRUST = ("complete", "partial", "degraded")


def frames(name: str) -> list[list[bytes]]:
    found: list[list[bytes]] = captured_frames(name)
    return found


TRUTHS: dict[str, dict[str, Any]] = {name: captured_truth(name) for name in NAMES}
PLAYED = {name: frames(name) for name in NAMES}


@pytest.fixture(scope="module")
def played(new_pipeline: Callable[..., Any]) -> Any:
    """The pipeline after all captures went through it, with both processes stopped in order."""
    pipeline = new_pipeline(*NAMES)
    worker, connector = pipeline.start("work"), pipeline.start("connect")
    pipeline.wait_subscribed()
    # One batch of each engine in turn, as they would come from engines that run side by side.
    turns = ([(name, parts) for parts in PLAYED[name]] for name in NAMES)
    for turn in zip_longest(*turns):
        for name, parts in filter(None, turn):
            pipeline.publish(name, parts)
    pipeline.wait_batches({name: TRUTHS[name]["received_batches"] for name in NAMES})
    pipeline.finish(connector, worker)
    return pipeline


def resident(truth: dict[str, Any]) -> dict[tuple[str, int], tuple[int, int, int]]:
    """(medium, group) to physical entries, distinct blocks and tokens, as the engine knew them at its end."""
    if truth["engine"] == "sglang":
        pages = Counter(block for _, block in truth["final_cached"])
        return {("gpu", 0): (pages.total(), len(pages), len(pages) * truth["page_size"])}
    found = {}
    for group in truth["groups"]:
        copies = [row[2] for row in truth["final_cached"] if row[0] == group["idx"]]
        found["gpu", group["idx"]] = (sum(copies), len(copies), len(copies) * group["block_size"])
    if "offload" in truth:
        chunks = Counter(external for _, _, external in truth["offload"]["final_ready"])
        found["cpu", 0] = (chunks.total(), len(chunks), 0)
    return found


def pages_at_reset(name: str) -> int:
    """What SGLang held when it was reset: after the batch before, and after what came ahead of the clear."""
    (reset,) = TRUTHS[name]["resets"]
    seq = reset["batches_published"]
    pages: int = dict(TRUTHS[name]["checkpoints"])[seq - 1]
    *before, (clear, *_) = msgspec.msgpack.decode(PLAYED[name][seq][2])[1]
    assert clear == "AllBlocksCleared"
    return pages + sum(len(hashes) * (1 if kind == "BlockStored" else -1) for kind, hashes, *_ in before)


def test_the_captures_are_all_there() -> None:
    assert set(ERAS) == set(NAMES)


def test_occupancy_at_the_latest_window_is_what_the_engines_held(played: Any) -> None:
    expected = {
        (name, *place): (*figures, "complete")
        for name in NAMES
        for place, figures in resident(TRUTHS[name]).items()
    }
    assert played.latest_occupancy() == expected


def test_flow_over_all_windows_is_what_the_engines_counted(played: Any) -> None:
    columns = (
        "stored_blocks", "removed_blocks", "cleared_blocks",
        "reannounced_blocks", "unknown_removed_blocks", "expired_blocks",
    )  # fmt: skip
    sums = ", ".join(f"sum({column})" for column in columns)
    rows = played.query(f"SELECT replica, medium, {sums} FROM {{}}.flow_10s FINAL GROUP BY 1, 2")
    flows = {row[:2]: row[2:] for row in rows}
    assert set(flows) == {(n, medium) for n in NAMES for medium, _ in resident(TRUTHS[n])}
    for (name, medium), (stored, removed, cleared, *oddities) in flows.items():
        truth = TRUTHS[name]
        entries = sum(figures[0] for place, figures in resident(truth).items() if place[0] == medium)
        assert oddities == [0, 0, 0], name
        assert stored - removed - cleared == entries, name
        if medium == "cpu":
            assert cleared == 0, "a reset of the GPU cache leaves the CPU tier"
        elif truth["engine"] == "sglang":
            assert removed * truth["page_size"] == truth["stats"]["evicted_tokens"]
            assert cleared == pages_at_reset(name)
        else:
            counters = truth["engine_counters"]
            assert removed == counters["blocks_evicted"], name
            assert cleared == counters.get("physical_entries_dropped_by_reset", 0), name
            assert stored == counters.get("map_inserts", stored), name


def test_the_flow_of_single_copies_agrees_with_the_engines_map(played: Any) -> None:
    """Duplicates come without a fill and leave without an eviction."""
    flows = {
        name: figures
        for name, *figures in played.query(
            "SELECT replica, sum(filled_blocks), sum(evicted_blocks) FROM {}.flow_10s FINAL "
            "WHERE medium = 'gpu' GROUP BY replica"
        )
    }
    known = {name: TRUTHS[name].get("engine_counters", {}) for name in NAMES}
    checked = 0
    for name, counters in known.items():
        if "map_inserts" in counters:
            filled, evicted = flows[name]
            assert filled == counters["map_inserts"] - counters["map_inserts_duplicate_hash"], name
            assert evicted == counters["map_pops"] - counters["map_pops_other_copy_remains"], name
            checked += 1
    assert checked == 6


def test_stream_health_lost_nothing(played: Any) -> None:
    rows = played.dicts(
        "SELECT replica, sum(batches) AS batches, sum(events) AS events, "
        "sum(duplicate_batches) AS duplicates, sum(gap_batches + lost_batches + replayed_batches) AS missed, "
        "sum(undecodable_events) AS undecodable, sum(restarts) AS restarts, max(last_seq) AS last, "
        "groupUniqArray(trust) AS trusts "
        "FROM {}.stream_health_10s FINAL GROUP BY replica ORDER BY replica"
    )
    assert rows == [
        {
            "replica": name,
            "batches": TRUTHS[name]["received_batches"],
            "events": sum(len(msgspec.msgpack.decode(payload)[1]) for _, _, payload in PLAYED[name]),
            "duplicates": 0,
            "missed": 0,
            "undecodable": 0,
            "restarts": 0,
            "last": TRUTHS[name]["received_batches"] - 1,
            "trusts": ["complete"],
        }
        for name in NAMES
    ]


def test_sources_say_engine_and_era(played: Any) -> None:
    rows = played.query(
        "SELECT replica, dp_rank, engine, wire_era, hash_domain, tenant, first_seq, last_seq, trust, "
        "closed_reason, closed_at FROM {}.sources FINAL ORDER BY replica"
    )
    assert rows == [
        (name, 0, *ERAS[name], "m/vllm-sha256-int64/default", "default", 0, len(PLAYED[name]) - 1, "complete",
         "", None)
        for name in NAMES
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["occupancy", "flow", "stream_health"])
def test_the_views_return_the_winning_rows(played: Any, name: str) -> None:
    fine = f"{{0}}.{name}_10s FINAL"
    ((first, last),) = played.query(f"SELECT min(window), max(window) FROM {fine}")
    everything = played.query(f"SELECT * FROM {fine} ORDER BY ALL")
    assert everything
    view = f"SELECT * FROM {{0}}.{name}(from='{first}', to='{last}') ORDER BY ALL"
    assert played.query(view) == everything
    view = f"SELECT * FROM {{0}}.{name}(from='{last}', to='{last}') ORDER BY ALL"
    assert played.query(view) == [row for row in everything if row[0] == last]


@pytest.mark.parametrize("length", ["1m", "1h"])
@pytest.mark.parametrize("name", ["occupancy", "flow", "stream_health"])
def test_rollups_equal_a_recount(played: Any, name: str, length: str) -> None:
    found = played.dicts(f"SELECT * FROM {{}}.{name}_{length} FINAL ORDER BY ALL")
    for row in found:
        assert row.pop("version") > 0
    fine = played.dicts(f"SELECT * FROM {{}}.{name}_10s FINAL ORDER BY ALL")
    expected = list(recounted(fine, name, length))
    assert expected
    assert sorted(map(repr_of, found)) == sorted(map(repr_of, expected))


def repr_of(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


DIMENSIONS = ("model", "replica", "dp_rank", "medium", "group_idx", "block_size")
LAST = {
    "occupancy": (
        "entries",
        "blocks",
        "tokens",
        "covered_blocks",
        "capacity_blocks",
        "store_only",
        "at_least",
    ),
    "flow": (),
    "stream_health": ("incarnation", "last_seq", "last_batch_at", "drift_since"),
}
LARGEST = {
    "occupancy": {"entries": "entries_max", "blocks": "blocks_max", "tokens": "tokens_max"},
    "flow": {},
    "stream_health": {"lag_seconds": "lag_seconds", "drift_blocks": "drift_blocks"},
}


def recounted(fine: list[dict[str, Any]], name: str, length: str) -> Iterator[dict[str, Any]]:
    """The rows of a coarser table, counted from the ten-second rows by the rules of its description."""
    start = {"second": 0} if length == "1m" else {"second": 0, "minute": 0}

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return (row["window"].replace(**start), *(row[d] for d in DIMENSIONS if d in row))

    for _, group in groupby(sorted(fine, key=key), key):
        rows = sorted(group, key=lambda row: row["window"])
        last = rows[-1]
        worst = max(rows, key=lambda row: (TRUST.index(row["trust"]), row["window"]))
        row = {column: last[column] for column in (*DIMENSIONS, *LAST[name]) if column in last}
        row["window"] = last["window"].replace(**start)
        row |= {to: max(one[of] for one in rows) for of, to in LARGEST[name].items()}
        row |= {"trust": worst["trust"], "trust_since": worst["trust_since"], "windows": len(rows)}
        if name == "stream_health":
            row["connected"] = all(one["connected"] for one in rows)
        for column in last.keys() - row.keys() - {"version"}:
            if column == "lifetime_hist":
                histograms = zip_longest(*(one[column] for one in rows), fillvalue=0)
                row[column] = [sum(bucket) for bucket in histograms]
            else:
                row[column] = sum(one[column] for one in rows)
        yield row


def test_neither_process_had_anything_to_complain_of(played: Any) -> None:
    lines = chain.from_iterable(process.said().splitlines() for process in played.processes)
    said = [json.loads(line) for line in lines]
    # A broker that never had a group first makes the topic of their offsets, of which its client complains.
    ours = [line for line in said if not line["logger"].startswith("aiokafka")]
    assert [line for line in ours if line["level"] != "info"] == []


@pytest.mark.night
def test_the_page_shows_what_the_engines_held(
    played: Any, visit: Open, free_port: Callable[[], int], tmp_path: Path
) -> None:
    server = serve(played.settings, free_port(), tmp_path)
    try:
        tab = visit(server.origin)
        shown, expected = {}, {}
        for name, last in played.query("SELECT replica, max(window) FROM {}.occupancy_10s GROUP BY replica"):
            end = int(last.timestamp()) + 9
            tab.open(f"board=replica&from={end - 299}&to={end}&replica={name}&refresh=0")
            shown[name] = (
                tab.value("replica-gpu-blocks", "in use"),
                tab.value("replica-gpu-blocks", "distinct"),
                tab.value("replica-occupancy", "gpu"),
            )
            held = [figures for (medium, _), figures in resident(TRUTHS[name]).items() if medium == "gpu"]
            entries, blocks, tokens = zip(*held, strict=True)
            # Groups hold the same tokens once each: the page counts those of the group that holds most.
            expected[name] = sum(entries), sum(blocks), max(tokens)
        assert set(shown) == set(NAMES)
        assert shown == expected
    finally:
        server.stop()
