"""Canonical CBOR (RFC 8949, section 4.2.1) of what vLLM hashes: integers, text, bytes, tuples and None."""

from __future__ import annotations

from collections.abc import Sequence

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY = 0x00, 0x20, 0x40, 0x60, 0x80
_NONE = b"\xf6"
_KEPT = 1 << 18
"""Token ids below this are remembered: most vocabularies."""


class _Tokens(dict[int, bytes]):
    """Token id -> its encoding; a prompt repeats itself, and so do prompts."""

    def __missing__(self, token: int) -> bytes:
        encoded = _integer(token)
        if 0 <= token < _KEPT:
            self[token] = encoded
        return encoded


def _head(kind: int, argument: int) -> bytes:
    if argument < 24:
        return bytes((kind | argument,))
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if argument < 1 << 8 * size:
            return bytes((kind | code,)) + argument.to_bytes(size, "big")
    raise OverflowError(f"{argument.bit_length()} bits; CBOR heads have 64")


def _integer(value: int) -> bytes:
    return _head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value)


_tokens = _Tokens()


def encoded_tokens(tokens: Sequence[int]) -> bytes:
    """Return the array of these token ids."""
    return _head(_ARRAY, len(tokens)) + b"".join(map(_tokens.__getitem__, tokens))


def encoded(value: object) -> bytes:
    """Return the encoding of a value. Raises TypeError for what vLLM puts into no hash."""
    if value is None:
        return _NONE
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, bytes):
        return _head(_BYTES, len(value)) + value
    if isinstance(value, str):
        text = value.encode()
        return _head(_TEXT, len(text)) + text
    if isinstance(value, tuple):
        return _head(_ARRAY, len(value)) + b"".join(map(encoded, value))
    raise TypeError(f"cannot encode {type(value).__name__}")


def encoded_block(parent: bytes | int, tokens: Sequence[int], keys: object) -> bytes:
    """Return the encoding of the three that make up a block's hash."""
    return b"".join((_head(_ARRAY, 3), encoded(parent), encoded_tokens(tokens), encoded(keys)))
