"""What pods say in annotations, labels and the names of their ports. No IO."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from connectors.discovery.kubernetes.documents import Pod
from connectors.process.addresses import MAX_PORT
from connectors.process.errors import DataError
from schemas.reasons import PodRefusal

ANNOTATION_PREFIX = "kvlens/"


class PodRefused(DataError):
    """A pod, or a part of it, cannot be read."""

    reason: PodRefusal
    text: str
    line = "{text}"


Note = Callable[[PodRefused], None]


def annotated(pod: Pod) -> Mapping[str, str]:
    """Return our annotations, without their prefix."""
    return {
        key.removeprefix(ANNOTATION_PREFIX): value
        for key, value in pod.annotations.items()
        if key.startswith(ANNOTATION_PREFIX)
    }


def whole(text: str) -> int | None:
    """Return the number of a text of at most five digits; None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


def number(pod: Pod, key: str, least: int, most: int) -> int | None:
    """Return what one of our annotations says; None if it is not there. Raises PodRefused."""
    text = pod.annotations.get(ANNOTATION_PREFIX + key)
    if text is None:
        return None
    value = whole(text)
    if value is None or not least <= value <= most:
        raise PodRefused(
            "bad_annotation", f"{ANNOTATION_PREFIX}{key} is {text[:20]!r}, no number from {least} to {most}"
        )
    return value


def port_in(labels: Mapping[str, str], label: str) -> int | None:
    """Return the port in a label; None if there is none or it cannot be one."""
    port = whole(labels.get(label, "")) if label else None
    return port if port is not None and 1 <= port <= MAX_PORT else None


def port_named(pod: Pod, names: Sequence[str]) -> int | None:
    """Return a port that a container declares under one of these names."""
    return next((number for name, number in pod.ports if name in names and 1 <= number <= MAX_PORT), None)
