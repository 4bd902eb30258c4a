"""The bound between the subscriber's thread and the event loop."""

from __future__ import annotations

from connectors.frames.bundle import Bundle
from connectors.receive.hand_over import HandOver
from connectors.receive.received import MESSAGE_OVERHEAD_BYTES, Key, Received


def test_it_is_full_until_half_of_it_is_free_whatever_is_put_meanwhile() -> None:
    woken = []
    hand_over = HandOver(10_000, lambda: woken.append(True))

    def put(size: int) -> None:
        messages = Bundle.of([(b"", bytes(8), b"x")])
        hand_over.put(("a", 0), messages, size - MESSAGE_OVERHEAD_BYTES, 0.0)

    put(10_000)
    assert hand_over.full
    hand_over.release(4_000)
    put(1_000)  # what a closed socket still held
    assert hand_over.full, "7,000 of 10,000 wait"
    hand_over.release(1_999)
    assert (hand_over.full, woken) == (True, [])
    hand_over.release(1)
    assert (hand_over.full, woken) == (False, [True])


def test_what_is_left_out_waits_as_one_while_nothing_is_taken() -> None:
    hand_over = HandOver(10_000, lambda: None)
    for number in range(1_000):
        hand_over.put_left_out(("a", 0), 2, float(number))
        hand_over.put_left_out(("b", 0), 1, float(number))

    def taken() -> list[tuple[Key, int]]:
        found = []
        while isinstance(received := hand_over.take(), Received):
            found.append((received.source, received.left_out))
        return found

    assert taken() == [(("a", 0), 2_000), (("b", 0), 1_000)]
    hand_over.put_left_out(("a", 0), 3, 0.0)
    assert taken() == [(("a", 0), 3)]


def test_what_waits_can_be_counted_while_more_comes() -> None:
    hand_over = HandOver(10_000, lambda: None)

    class Meanwhile(Bundle):
        def __len__(self) -> int:
            hand_over.put_last(("b", 0), 0.0)  # as the thread may at any time
            return super().__len__()

    for _ in range(2):
        hand_over.put(("a", 0), Meanwhile.of([(b"", bytes(8), b"x")]), 1, 0.0)
    assert hand_over.waiting_messages == 2
