"""What has to stand in the environment of a store's process from its first moment."""

from __future__ import annotations

from pathlib import Path


def environment_of(path: Path) -> dict[str, str]:
    """Return the variables for data in `path`.

    The engine looks for what the kernel put behind the environment of the process, and reads anything where
    that was moved since, which setting a variable does: it crashed now and then while it started.
    """
    return {
        # The engine makes a store of its own for a moment when it is imported.
        "TMPDIR": str(path / "tmp"),
        # Clients of a store of ours meet the same clock on every machine; it knows the zone's name.
        "TZ": "UTC",
        # Python would set LC_CTYPE.
        "PYTHONCOERCECLOCALE": "0",
    }
