from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from connectors.order.sequence import (
    RECENT_BATCHES,
    Decision,
    SequencePosition,
    decide,
    fingerprint_of,
)


def test_next_number_is_new() -> None:
    assert decide(SequencePosition(7, 1), 8, 99) is Decision.NEW


def test_numbers_left_out_are_missing_before_it() -> None:
    assert decide(SequencePosition(7, 1), 12, 99) is Decision.AHEAD
    assert decide(SequencePosition(7, 1), 9, 99) is Decision.AHEAD


def test_same_batch_again_is_a_duplicate() -> None:
    assert decide(SequencePosition(7, 1), 7, 1) is Decision.DUPLICATE


def test_same_number_with_other_content_is_a_restart() -> None:
    """An engine that published only batch 0, died, and publishes batch 0 of its next life."""
    assert decide(SequencePosition(0, 1), 0, 2) is Decision.RESTART


def test_smaller_number_never_seen_is_a_restart() -> None:
    assert decide(SequencePosition(5000, 1), 0, 2) is Decision.RESTART
    assert decide(SequencePosition(5000, 1), 3, 2) is Decision.RESTART


def test_batch_is_recognised_within_the_window_only() -> None:
    position = SequencePosition(0, 1000)
    for seq in range(1, RECENT_BATCHES + 1):
        position.advance(seq, 1000 + seq)
    assert decide(position, 1, 1001) is Decision.DUPLICATE
    assert decide(position, 0, 1000) is Decision.RESTART


def test_number_passed_over_is_no_gap_and_may_still_come() -> None:
    position = SequencePosition(4, 1)
    position.pass_over(5)
    position.pass_over(9)
    assert decide(position, 6, 2) is Decision.NEW
    assert decide(position, 5, 2) is Decision.NEW
    assert decide(position, 8, 2) is Decision.AHEAD
    assert decide(position, 4, 1) is Decision.DUPLICATE
    position.advance(6, 2)
    assert decide(position, 5, 2) is Decision.RESTART


def test_replayed_batches_are_recognised_however_many_and_until_the_live_stream_is_past_them() -> None:
    position = SequencePosition(100, 1)
    for seq in range(101, 5101):
        position.advance_by_replay(seq, seq * 7)
    position.advance_by_replay(5105, 99)
    assert all(position.taken(seq, seq * 7) for seq in range(101, 5101))
    assert position.taken(5105, 99)
    assert not any(position.taken(seq, seq * 7 + 1) for seq in range(101, 5110))
    position.forget_replayed()
    assert position.taken(101, 707)
    position.advance(5106, 3)
    position.forget_replayed()
    assert not position.taken(101, 707)
    assert position.taken(5100, 5100 * 7), "one of the recent"
    position.advance_by_replay(9000, 5)
    assert (position.last, position.due, position.fingerprint) == (9000, 9001, 5)
    assert position.taken(9000, 5)


def test_fingerprint_tells_lives_apart_by_their_timestamps() -> None:
    first = b"\x93\xcbA\xda\xc0@\xa2u\xb4_" + b"x" * 2000
    second = b"\x93\xcbA\xda\xc0@\xa2u\xb4\x60" + b"x" * 2000
    assert fingerprint_of(first) == fingerprint_of(bytes(first))
    assert fingerprint_of(first) != fingerprint_of(second)
    assert fingerprint_of(first) != fingerprint_of(first + b"x")
    assert fingerprint_of(b"") != fingerprint_of(b"\0")


@given(
    last=st.integers(0, 1 << 48),
    seq=st.integers(0, (1 << 64) - 1),
    fingerprint=st.integers(0, (1 << 32) - 1),
)
def test_every_number_gets_a_decision_and_moves_nothing(last: int, seq: int, fingerprint: int) -> None:
    position = SequencePosition(last, 5)
    decision = decide(position, seq, fingerprint)
    assert position.last == last
    if decision is Decision.NEW:
        assert seq == last + 1
    elif decision is Decision.AHEAD:
        assert seq > last + 1
    else:
        assert seq <= last
        assert (decision is Decision.DUPLICATE) == ((seq, fingerprint) == (last, 5))


@st.composite
def _engine_and_network(draw: st.DrawFn) -> list[tuple[int, int, bool]]:
    """What arrives, as (life, seq, is a repetition); short of RECENT_BATCHES, so that none is forgotten.

    The engine counts 0, 1, 2... and starts anew with a restart; the network drops batches and repeats
    recent ones. A batch's content is (life, seq).
    """
    arrived: list[tuple[int, int, bool]] = []
    life = seq = 0
    of_life: list[int] = []
    actions = st.sampled_from(["send", "send", "send", "drop", "repeat", "restart"])
    for action in draw(st.lists(actions, max_size=60)):
        if action == "send":
            arrived.append((life, seq, False))
            of_life.append(seq)
            seq += 1
        elif action == "drop":
            seq += 1
        elif action == "repeat" and of_life:
            arrived.append((life, draw(st.sampled_from(of_life)), True))
        elif action == "restart":
            life, seq, of_life = life + 1, 0, []
    return arrived


@given(_engine_and_network())
def test_decisions_agree_with_a_list_of_all_that_arrived(arrived: list[tuple[int, int, bool]]) -> None:
    """The oracle keeps every batch for ever; a new life that is already further on looks like a gap."""
    position: SequencePosition | None = None
    ours: list[tuple[int, int]] = []
    for life, seq, repeated in arrived:
        fingerprint = life * 1_000_000 + seq
        if position is None:
            position = SequencePosition(seq, fingerprint)
            ours = [(life, seq)]
            continue
        last = ours[-1][1]
        decision = decide(position, seq, fingerprint)
        if repeated and (life, seq) in ours:
            assert decision is Decision.DUPLICATE
            continue
        if seq == last + 1:
            assert decision is Decision.NEW
        elif seq > last:
            assert decision is Decision.AHEAD
        else:
            assert decision is Decision.RESTART
            position = SequencePosition(seq, fingerprint)
            ours = [(life, seq)]
            continue
        position.advance(seq, fingerprint)
        ours.append((life, seq))
    if position is not None:
        assert all(position.taken(seq, life * 1_000_000 + seq) for life, seq in ours)
        assert position.last == ours[-1][1]
