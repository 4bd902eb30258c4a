from __future__ import annotations

from connectors.frames.bundle import is_sequence
from connectors.receive.plain_receiver import split_messages


def _good(seq: int) -> list[bytes]:
    return [b"kv-events", seq.to_bytes(8, "big"), b"\x93payload"]


def test_sequence_frames_are_recognised() -> None:
    assert is_sequence(bytes(8))
    assert is_sequence((1 << 47).to_bytes(8, "big"))
    assert not is_sequence(bytes(7))
    assert not is_sequence(b"kvevents")
    assert not is_sequence(b"\xff" * 8)


def test_valid_message_behind_short_ones_is_found() -> None:
    for wrong in ([b"x"], [b"topic", b"\x93payload"], [b"topic", bytes(8)]):
        assert split_messages([*wrong, *_good(1)]) == [wrong, _good(1)]


def test_message_of_too_many_frames_is_not_taken_for_a_valid_one() -> None:
    for more in ([b"extra"], [b"extra", b"more"], [b"", b""]):
        assert split_messages([*_good(1), *more]) == [[*_good(1), *more]]
