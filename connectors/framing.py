"""Find the messages in frames that were read three at a time.

Asking ZMQ after every frame whether the message goes on costs three times as much as receiving it, so the
subscriber asks after the third frame only, and looks closer when something is not as it should be.
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
    """Return the messages in `frames`, which begin and end where a message does.

    Only among the first three frames may a message have ended unseen. So the last three are a valid
    message behind short ones if the second of them is a sequence number; otherwise all is one wrong one.
    """
    if len(frames) > 3 and is_sequence(frames[-2]):
        return [frames[:-3], frames[-3:]]
    return [frames]
