"""Records for readers as JSON: what MessagePack packs into bytes is a list, a hash 16 hexadecimal digits.

MessagePack is for programs that apply whole columns; this is for those that read field by field, such as SQL.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from schemas.events import Batch
from schemas.hashes import HASH_BYTES
from schemas.residency import CLEARED, EVICTED, EXPIRED, FILLED, GENERATED, RETURNED, SUBSUMED
from schemas.wire_prefix import unprefixed

KIND_NAMES = {
    FILLED: "filled",
    GENERATED: "generated",
    RETURNED: "returned",
    EVICTED: "evicted",
    CLEARED: "cleared",
    EXPIRED: "expired",
    SUBSUMED: "subsumed",
}
"""Kinds of change of residency."""
DIGITS = "^[0-9a-f]{16}$"
_DIGITS = 2 * HASH_BYTES

_Record = TypeVar("_Record", bound=msgspec.Struct)


class Column(NamedTuple):
    """Several values that one field of bytes holds."""

    listed: Callable[[bytes], list[Any]]
    packed: Callable[[list[Any]], bytes]
    """Raises ValueError, TypeError, KeyError or struct.error for a list of others."""
    item: dict[str, Any]
    """JSON Schema of an entry."""


def _digits(packed: bytes) -> list[str]:
    digits = packed.hex()
    return [digits[at : at + _DIGITS] for at in range(0, len(digits), _DIGITS)]


def _of_digits(digits: list[Any]) -> bytes:
    packed = bytes.fromhex("".join(digits))
    if len(packed) != HASH_BYTES * len(digits) or any(len(one) != _DIGITS for one in digits):
        raise ValueError("expected hashes of 16 hexadecimal digits")
    return packed


def _little(packed: bytes) -> bytes:
    """Turn each word of eight bytes around."""
    return struct.pack(f">{len(packed) // 8}Q", *struct.unpack(f"<{len(packed) // 8}Q", packed))


def _numbers(code: str, item: dict[str, Any]) -> Column:
    size = struct.calcsize(f"<{code}")

    def listed(packed: bytes) -> list[Any]:
        return [*struct.unpack(f"<{len(packed) // size}{code}", packed)]

    def packed(numbers: list[Any]) -> bytes:
        return struct.pack(f"<{len(numbers)}{code}", *numbers)

    return Column(listed, packed, item)


_KIND_NUMBERS = {name: kind for kind, name in KIND_NAMES.items()}
_HASHES = Column(_digits, _of_digits, {"type": "string", "pattern": DIGITS})
COLUMNS: dict[str, Column] = {
    **dict.fromkeys(("hashes", "links", "roots", "ends"), _HASHES),
    "kinds": Column(
        lambda packed: [KIND_NAMES[kind] for kind in packed],
        lambda names: bytes(_KIND_NUMBERS[name] for name in names),
        {"enum": [*_KIND_NUMBERS]},
    ),
    "times": _numbers("d", {"type": "number"}),
    **dict.fromkeys(("block_sizes", "stored"), _numbers("I", {"type": "integer"})),
    **dict.fromkeys(("depths", "lora_codes"), _numbers("H", {"type": "integer"})),
    "runs": Column(
        lambda packed: _digits(_little(packed)),
        lambda digits: _little(_of_digits(digits)),
        _HASHES.item,
    ),
    "known": _numbers("?", {"type": "boolean"}),
}
"""Fields that are lists, by name, in events, changes and decisions."""
HASH = "parent"
"""The field that is one hash."""


def to_json(record: msgspec.Struct) -> bytes:
    """Return the JSON of a record."""
    plain = msgspec.to_builtins(record, builtin_types=(bytes,))
    for fields in _with_columns(plain):
        for name, value in fields.items():
            if isinstance(value, bytes):
                fields[name] = _digits(value)[0] if name == HASH else COLUMNS[name].listed(value)
    return msgspec.json.encode(plain)


def from_json(value: bytes, kind: type[_Record]) -> _Record:
    """Return the record of its JSON. Raises msgspec.DecodeError, UnicodeDecodeError and RecursionError."""
    return msgspec.convert(packed(msgspec.json.decode(unprefixed(value))), kind, builtin_types=(bytes,))


def batch_from_json(value: bytes | msgspec.Raw) -> Batch:
    """Return the batch of its JSON, as it stands in a record. Raises what `from_json` does."""
    plain = msgspec.json.decode(value)
    packed({"batches": [plain]})
    return msgspec.convert(plain, Batch, builtin_types=(bytes,))


def packed(plain: Any) -> Any:
    """Pack the lists of decoded JSON, in place; return it. Raises msgspec.ValidationError."""
    try:
        for fields in _with_columns(plain):
            for name in fields.keys() & COLUMNS.keys():
                if type(fields[name]) is not list:
                    raise msgspec.ValidationError(f"Expected `array` - at `{name}`")
                fields[name] = COLUMNS[name].packed(fields[name])
            if fields.get(HASH) is not None:
                fields[HASH] = _of_digits([fields[HASH]])
    except (LookupError, TypeError, ValueError, AttributeError, struct.error) as error:
        if isinstance(error, msgspec.ValidationError):
            raise
        raise msgspec.ValidationError(str(error)) from error
    return plain


def _with_columns(plain: Any) -> Iterator[dict[str, Any]]:
    """Give what may have columns: events of batches, changes of sources, decisions."""
    for batch in plain.get("batches", ()):
        yield from batch[3]
    for source in plain.get("sources", ()):
        yield from source["changes"]
    if plain.get("decisions") is not None:
        yield plain["decisions"]
