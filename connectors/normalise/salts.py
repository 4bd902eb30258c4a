"""The salt of a store, which is forwarded as a keyed hash.

SGLang gives it as `cache_salt` in maps. vLLM lists it in `extra_keys`, in the entry of a prompt's first
block: the adapter's name if the event has one, then images as arrays, then the salt, then digests as bytes.
So it is the first text after that name. Events in array form are not looked at: before vLLM 0.19 images are
texts there, too.
"""

from __future__ import annotations

from msgspec import DecodeError, Raw
from msgspec.msgpack import Decoder

from connectors.engines.sighting import NIL
from connectors.normalise.errors import EventError
from connectors.normalise.fields import ARRAY
from connectors.normalise.pseudonyms import Pseudonyms

_TEXT = Decoder(str)
_LONG_TEXTS = frozenset({0xD9, 0xDA, 0xDB})


def salt_name(label: Raw | None, keys: Raw | None, names: Pseudonyms, *, adapter: bool) -> str | None:
    """Return the name of the salt in an event in map form, None where there is none.

    `label` is its `cache_salt`, `keys` its `extra_keys`; `adapter`: whether it names an adapter. Raises
    EventError for a label that is no text.
    """
    salt = _listed(keys, 1 if adapter else 0) if label is None or label == NIL else _labelled(label)
    return names.name(salt) if salt else None


def _labelled(label: Raw) -> str:
    try:
        return _TEXT.decode(label)
    except UnicodeDecodeError:
        raise EventError("invalid_utf8") from None
    except DecodeError:
        raise EventError("bad_field_type") from None


def _listed(keys: Raw | None, first: int) -> str | None:
    try:
        for key in ARRAY.decode(ARRAY.decode(keys or NIL)[0])[first:]:
            if _is_text(key):
                return _TEXT.decode(key)
    except (DecodeError, UnicodeDecodeError, RecursionError, IndexError):
        pass
    return None


def _is_text(raw: Raw) -> bool:
    head = memoryview(raw)[0]
    return head & 0xE0 == 0xA0 or head in _LONG_TEXTS
