"""Load the compiled code that reads streams, or compile it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.receive.socket_thread import TURN_BYTES, TURN_MESSAGES

if TYPE_CHECKING:
    from connectors.receive.compiled_receiver import Receiver


def warm_up_scanner() -> None:
    """Warm up the scanner alone, for a connector that takes messages one by one."""
    # Imported here, as the import alone takes a second.
    from connectors.normalise import scan

    scan.warm_up()


def warm_up() -> Receiver | None:
    """Warm up scanner and receiver; return the receiver, None where pyzmq hides its libzmq.

    Takes a tenth of a second if the code was cached, otherwise seconds.
    """
    from connectors.order import gathering
    from connectors.receive import compiled_receiver

    warm_up_scanner()
    gathering.warm_up()
    try:
        compiled_receiver.warm_up()
        return compiled_receiver.Receiver(messages=TURN_MESSAGES, size=TURN_BYTES)
    except compiled_receiver.LibzmqHidden:
        return None
