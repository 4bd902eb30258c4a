"""Keys of hashes, from files that settings name."""

from __future__ import annotations

from pathlib import Path

from connectors.process.errors import OperatorError

MIN_KEY_BYTES = 16


class KeyUnusable(OperatorError):
    """There is no key in the file that the settings name."""

    setting: str
    path: str
    reason: str
    line = "{setting} {path}: {reason}"


def key_in(setting: str, path: str) -> bytes:
    """Return the key in a file, without white space around it. Raises KeyUnusable."""
    try:
        key = Path(path).read_bytes().strip()
    except OSError as error:
        raise KeyUnusable(setting, path, error.strerror or str(error)) from error
    if len(key) < MIN_KEY_BYTES:
        raise KeyUnusable(setting, path, f"a key has at least {MIN_KEY_BYTES} bytes")
    return key
