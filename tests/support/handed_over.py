"""What a subscriber's thread hands over, waited for."""

from __future__ import annotations

from connectors.receive.hand_over import HandOver
from connectors.receive.received import Received, Together


async def received(hand_over: HandOver) -> Received | None:
    """Wait for messages of one source; None when the thread has ended and all of them were taken.

    Raises what ended the thread before its time.
    """
    while hand_over.empty and not hand_over.ended:
        await hand_over.wait(None)
    arrived = hand_over.take()
    assert not isinstance(arrived, Together)
    return arrived
