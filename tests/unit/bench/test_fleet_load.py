"""What the load is, how many processes share it, and when a batch counts as seen."""

from __future__ import annotations

import msgspec
import pytest
from fleet_load import frames
from fleet_load.freshness import Seen
from fleet_load.installation import agents_of
from fleet_load.standing import Standing

from pipeline.local.demo.freshness import FreshnessMeter


def test_workers_share_partitions_or_have_an_agent_each() -> None:
    assert agents_of("1") == ["both"]
    assert agents_of("4") == ["both"] * 4
    assert agents_of("apart") == ["replica", "fleet"]
    with pytest.raises(ValueError, match="some"):
        agents_of("some")


def test_a_stream_of_frames_removes_what_it_holds() -> None:
    held: set[bytes] = set()
    payloads = frames.payloads()
    for turn in range(3):
        for payload in payloads:
            _, events, *_ = msgspec.msgpack.decode(payload)
            came = {digest for event in events[:2] for digest in event["block_hashes"]}
            gone = {digest for event in events[2:] for digest in event["block_hashes"]}
            assert len(came) == len(gone) == 8
            assert turn == 0 or gone <= held
            held = (held | came) - gone
    assert len(held) == 8 * frames.HELD


def test_each_batch_counts_from_its_own_time_to_the_first_query_that_saw_it() -> None:
    meter = FreshnessMeter()
    seen = Seen(meter)
    seen.queried([("a", 10, 100.0)], 101.0)
    assert meter.quantile(0.5) is None
    # Numbers 11 to 13, 50 ms apart, the last one at 100.15.
    seen.queried([("a", 13, 100.15)], 101.15)
    assert [meter.quantile(share) for share in (0.0, 0.5, 0.99)] == pytest.approx([1.0, 1.05, 1.1])
    seen.queried([("a", 13, 100.15)], 110.0)
    assert meter.quantile(0.99) == pytest.approx(1.1)


@pytest.mark.parametrize("phase", [0.0, 1.0, 2.0, 3.0])
def test_a_group_that_commits_every_four_seconds_moves_as_fast_wherever_the_measuring_begins(
    phase: float,
) -> None:
    standing = Standing()
    for sample in range(80):
        at = phase + sample / 4
        # Of eight partitions five commit half a second after the others.
        done = int(at // 4) * 150 + int((at - 0.5) // 4) * 250
        standing.samples.append((at, done, int(at * 100) + 300))
    assert standing.rate == pytest.approx(100)
    began, ended = standing.span
    assert began % 4 == ended % 4 == 0.5
    assert standing.share == pytest.approx(1.0, rel=0.01)


def test_a_group_that_hardly_moves_is_measured_from_end_to_end() -> None:
    standing = Standing([(0.0, 0, 0), (1.0, 0, 10), (2.0, 8, 20)])
    assert standing.span == (0.0, 2.0)
    assert standing.rate == pytest.approx(4.0)


def test_a_group_that_reads_what_another_one_commits_keeps_up_with_it() -> None:
    standing = Standing()
    for sample in range(80):
        at = sample / 4
        # The other one's rounds begin at uneven distances, and this one follows a second later.
        standing.samples.append(
            (
                at,
                sum(128 for began in (1, 5, 11, 15) if at >= began + 1),
                sum(128 for began in (1, 5, 11, 15) if at >= began),
            )
        )
    assert standing.share == pytest.approx(1.0)
