"""Find the messages again in a row of frames whose boundaries were not asked for.

Asking ZMQ after every frame whether the message goes on costs more than receiving it. Valid messages
have three frames, the second of which can be recognised, so the subscriber reads three at a time and
asks only when the second is not what it should be.
"""

from __future__ import annotations

from collections.abc import Sequence

from connectors.sequence import MAX_SEQUENCE

SEQUENCE_BYTES = 8
SEQUENCE_HEAD = bytes(SEQUENCE_BYTES - (MAX_SEQUENCE.bit_length() - 1) // 8)
"""What every sequence frame begins with, as the numbers stay below MAX_SEQUENCE."""


def is_sequence(frame: bytes) -> bool:
    """Tell whether a frame can be a sequence number."""
    return len(frame) == SEQUENCE_BYTES and frame.startswith(SEQUENCE_HEAD)


def split_messages(frames: Sequence[bytes]) -> list[Sequence[bytes]]:
    """Return the messages in `frames`, which begin and end where a message does, in order.

    Whole messages are found from the end backwards by their sequence frames; what is left between them is
    returned as one message of a wrong shape.
    """
    messages: list[Sequence[bytes]] = []
    at = end = len(frames)
    while at >= 3:
        if is_sequence(frames[at - 2]):
            if at < end:
                messages.append(frames[at:end])
            messages.append(frames[at - 3 : at])
            at = end = at - 3
        else:
            at -= 1
    if end:
        messages.append(frames[:end])
    messages.reverse()
    return messages
