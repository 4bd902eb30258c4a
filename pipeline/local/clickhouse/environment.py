"""What the environment of a store's process must contain from its start."""

from __future__ import annotations

from pathlib import Path


def environment_of(path: Path) -> dict[str, str]:
    """Return the variables for data in `path`.

    The engine reads what the kernel put behind the environment of the process, and reads garbage if the
    environment was moved, as it is by setting a variable: then it sometimes crashed while it started.
    """
    return {
        # The engine briefly creates a store of its own when it is imported.
        "TMPDIR": str(path / "tmp"),
        # Clients find the same time zone on every machine, one whose name the engine knows.
        "TZ": "UTC",
        # Python would set LC_CTYPE.
        "PYTHONCOERCECLOCALE": "0",
    }
