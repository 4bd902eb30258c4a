from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from connectors.framing import is_sequence, split_messages


def _good(seq: int) -> list[bytes]:
    return [b"kv-events", seq.to_bytes(8, "big"), b"\x93payload"]


def test_sequence_frames_are_recognised() -> None:
    assert is_sequence(bytes(8))
    assert is_sequence((1 << 47).to_bytes(8, "big"))
    assert not is_sequence(bytes(7))
    assert not is_sequence(b"kvevents")
    assert not is_sequence(b"\xff" * 8)


@given(st.lists(st.integers(0, 5), max_size=12))
def test_good_messages_are_found_between_wrong_ones(kinds: list[int]) -> None:
    """Kind 0, 1, 2: a good message; 3, 4, 5: wrong ones of 1, 2 and 4 frames."""
    wrong = {3: [b"x"], 4: [b"topic", b"\x93payload"], 5: [b"t", b"\xff" * 8, b"p", b"more"]}
    frames: list[bytes] = []
    good = []
    for number, kind in enumerate(kinds):
        if kind in wrong:
            frames += wrong[kind]
        else:
            frames += _good(number)
            good.append(_good(number))
    messages = [list(message) for message in split_messages(frames)]
    assert [frame for message in messages for frame in message] == frames
    assert [message for message in messages if len(message) == 3 and is_sequence(message[1])] == good


def test_message_cut_after_its_sequence_does_not_take_the_next_one_along() -> None:
    frames = [b"topic", bytes(8), *_good(1), *_good(2)]
    assert [list(message) for message in split_messages(frames)] == [
        [b"topic", bytes(8)],
        _good(1),
        _good(2),
    ]
