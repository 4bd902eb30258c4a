"""Splits a stream of bytes into lines of bounded length. No IO."""

from __future__ import annotations


class LineTooLong(Exception):
    """A line has no end within its bound."""


class Lines:
    """Cuts what it is fed into lines."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()

    def fed(self, data: bytes) -> list[bytes]:
        """Return the lines that have ended, without their ends and without empty ones. Raises LineTooLong."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
        self._rest += rest
        if len(self._rest) > self._max_bytes or any(len(line) > self._max_bytes for line in lines):
            raise LineTooLong(f"a line of more than {self._max_bytes} bytes")
        return [line for line in lines if line.strip()]
