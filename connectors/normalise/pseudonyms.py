"""Names for user data: equal for equal data, and meaningless to anyone without the key."""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from connectors.process.errors import OperatorError
from schemas.hashing.content import usable_key

if TYPE_CHECKING:
    from connectors.normalise.scanner.blake2b import Words

_NAME_BYTES = 8
MIN_KEY_BYTES = 16


class KeyUnusable(OperatorError):
    """The file that the settings name has no usable key."""

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


class Pseudonyms:
    """Keyed BLAKE2b, 64 bits of it. The key stays in this process."""

    def __init__(self, key: bytes) -> None:
        self._key = usable_key(key)

    @classmethod
    def of_file(cls, path: str, setting: str) -> Pseudonyms:
        """Read the key from the file of a setting, without white space around it. Raises KeyUnusable."""
        return cls(key_in(setting, path))

    @cached_property
    def state(self) -> Words:
        """The hash state from which the scanner makes the same names."""
        # numba takes a second to import, and not every process scans
        from connectors.normalise.scanner.blake2b import state_of

        return state_of(self._key, b"")

    def name(self, text: str) -> str:
        """Return 16 hexadecimal digits that stand for a text."""
        return blake2b(text.encode(), digest_size=_NAME_BYTES, key=self._key).hexdigest()
