"""Salts leave as keyed hashes, of which the scanner and both decoders make the same."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.frames.bundle import Bundle
from connectors.normalise.forwarding import Forwarding
from connectors.normalise.links import Linker
from connectors.normalise.normaliser import FIRST_LOOKS, Normaliser
from connectors.normalise.pseudonyms import Pseudonyms
from connectors.order.stream import SourceStream
from connectors.sources import Source
from schemas.events import Event, Stored, Undecodable
from schemas.settings import Connector
from tests.support.decoders import Decoders
from tests.support.inputs.event_records import events_in

KEY = b"0123456789abcdef"
NAMES = Pseudonyms(KEY)
DIGEST = bytes(range(32))
encode = msgspec.msgpack.encode

OF_SGLANG = bytes.fromhex(
    "93cb3ff8000000000000918aa474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392f909"
    "b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f6964739401020304aa626c6f636b5f73697a6502"
    "a76c6f72615f6964c0a66d656469756da3475055aa63616368655f73616c74a453414c54aa73657373696f6e5f6964"
    "a6636861742d31a96c6f72615f6e616d65a373716c00"
)
"""Made by the classes of SGLang 0.5.23: two blocks of two tokens, with session, salt and adapter."""
OF_VLLM = bytes.fromhex(
    "93cb3ff800000000000091de000ca474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392cf80"
    "0000000000000109b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f6964739401020304aa626c6f63"
    "6b5f73697a6502a76c6f72615f696401a66d656469756da3475055a96c6f72615f6e616d65a373716caa6578747261"
    "5f6b6579739293a373716c92a3696d6700a453414c5492a373716c92a3696d67fea967726f75705f69647800b26b76"
    "5f63616368655f737065635f6b696e64ae66756c6c5f617474656e74696f6eaa73657373696f6e5f6964a663686174"
    "2d3100"
)
"""Made by those of vLLM 0.33.0: the same, and an image over both blocks."""


def named(text: str) -> str:
    return blake2b(text.encode(), digest_size=8, key=KEY).hexdigest()


def decoded(event: Any, linker: Linker | None = None) -> Event:
    """Return what an event becomes, by all decoders that do not give it up."""
    (found,) = Decoders(linker=linker, salts=NAMES).agreed(event)
    return found


def salt(event: Any) -> str | None:
    """Return the name of an event's salt, which both decoders say."""
    (stored,) = Decoders(salts=NAMES).agreed(event, quick=True)
    assert isinstance(stored, Stored)
    return stored.salt


def in_map(**fields: Any) -> dict[str, Any]:
    every = {"type": "BlockStored", "block_hashes": [5, 6], "token_ids": [1] * 4, "block_size": 2}
    return every | {"medium": "GPU"} | fields


@pytest.mark.parametrize("payload", [OF_SGLANG, OF_VLLM], ids=["SGLang", "vLLM"])
def test_sessions_and_salts_as_engines_send_them(payload: bytes) -> None:
    forwarding = Forwarding(sessions=NAMES, salts=NAMES)
    normaliser = Normaliser(max_frame_bytes=1 << 20, forwarding=forwarding)
    for seq in range(FIRST_LOOKS + 2):
        (event,) = normaliser.normalise(payload, seq=seq, received_at=2.0).events
        assert isinstance(event, Stored)
        assert (event.session, event.salt, event.lora) == (named("chat-1"), named("SALT"), "sql")
    source = Source("r", 0, "m", "t", "m/s/t", "tcp://x:1")
    stream = SourceStream(source, Connector(), clock=lambda: 2.0, forwarding=forwarding)
    messages = [(b"t", seq.to_bytes(8, "big"), payload) for seq in range(4)]
    records = [*stream.feed_all(messages[:2], 2.0), *stream.feed_all(Bundle.of(messages[2:]), 2.0)]
    events = events_in([*records, *stream.flush()])
    told = [(event.session, event.salt) for event in events if isinstance(event, Stored)]
    assert told == [(named("chat-1"), named("SALT"))] * 4


def test_without_names_there_are_none() -> None:
    for payload in (OF_SGLANG, OF_VLLM):
        normaliser = Normaliser(max_frame_bytes=1 << 20)
        events = [
            normaliser.normalise(payload, seq=seq, received_at=2.0).events for seq in range(FIRST_LOOKS + 2)
        ]
        assert {event.salt for (event,) in events if isinstance(event, Stored)} == {None}


@pytest.mark.parametrize("salt_text", ["s", "x" * 127, "x" * 128, "x" * 129, "x" * 5_000])
@pytest.mark.parametrize("key", [b"k" * 16, bytes(range(64)), b"long" * 40], ids=len)
def test_the_scanner_makes_the_names_of_pseudonyms(key: bytes, salt_text: str) -> None:
    names = Pseudonyms(key)
    payload = encode([1.5, [in_map(cache_salt=salt_text)] * 2, 0])
    (batch,) = Decoders(salts=names).scanned(payload)
    assert batch is not None
    assert {event.salt for event in batch.events if isinstance(event, Stored)} == {names.name(salt_text)}


@pytest.mark.parametrize(
    ("lora", "extra_keys", "expected"),
    [
        (None, [["SALT"], None], "SALT"),
        (None, [[["img", 0], "SALT"], [["img", -2]]], "SALT"),
        ("sql", [["sql", ["img", 0], "SALT"], ["sql", ["img", -2]]], "SALT"),
        ("sql", [["sql", "SALT", DIGEST], ["sql", DIGEST]], "SALT"),
        (None, [["SALT", DIGEST], [DIGEST]], "SALT"),
        ("sql", [["sql", ["img", 0]], ["sql", ["img", -2]]], None),
        (None, [[DIGEST], [DIGEST]], None),
        ("sql", [["sql"], ["sql"]], None),
        (None, [[["img", 1]], [["img", -1]]], None),
        ("SALT", [["SALT", "SALT"], ["SALT"]], "SALT"),
        (None, [None, None], None),
    ],
)
def test_vllms_keys_tell_the_salt(lora: str | None, extra_keys: Any, expected: str | None) -> None:
    """What `to_event_extra_keys` of vLLM 0.33.0 makes of requests with these and a salt, or none."""
    event = in_map(lora_name=lora, extra_keys=extra_keys)
    assert salt(event) == (None if expected is None else named(expected))


def test_the_label_counts() -> None:
    assert salt(in_map(cache_salt="pepper", extra_keys=[["SALT"], None])) == named("pepper")
    assert salt(in_map(cache_salt=None, extra_keys=[["SALT"], None])) == named("SALT")
    assert salt(in_map(cache_salt="", extra_keys=[["SALT"], None])) is None
    assert salt(in_map(cache_salt="pepper", medium="CPU_PINNED")) == named("pepper")
    umlaut = decoded(in_map(cache_salt="Prise für Ægir"))  # the scanner gives up what is not ASCII
    assert isinstance(umlaut, Stored)
    assert umlaut.salt == named("Prise für Ægir")


@pytest.mark.parametrize("label", [7, ["SALT"], b"SALT", {"a": "SALT"}])
def test_a_label_that_is_no_text_costs_the_event(label: Any) -> None:
    assert decoded(in_map(cache_salt=label)) == Undecodable("bad_field_type", 3)


@pytest.mark.parametrize(
    "extra_keys",
    [7, "SALT", [], ["SALT"], [7], [[]], [None, ["SALT"]], {"a": ["SALT"]}, [{"a": "SALT"}], [[["SALT"]]]],
)
def test_keys_of_another_form_tell_none(extra_keys: Any) -> None:
    assert salt(in_map(extra_keys=extra_keys)) is None


def test_arrays_tell_none() -> None:
    begin = ["BlockStored", [5], None, [1, 1], 2, None, "GPU", None]
    fields = [*begin, [["image of 0.18"]], 0, "full_attention", None]
    for length in (9, 10, 12):
        assert salt(fields[:length]) is None
    assert salt(["BlockStored", [-1], None, [1, 1], 2, None, "GPU", {"cache_salt": "SALT"}]) is None


def test_links_are_those_of_the_raw_salt() -> None:
    event = in_map(cache_salt="pepper")
    stored = decoded(event, Linker(b"a key of a fleet"))
    assert isinstance(stored, Stored)
    alone = Decoders(linker=Linker(b"a key of a fleet")).single(encode([1.5, [event], 0]))
    assert alone is not None
    assert stored.salt == named("pepper")
    assert [stored.links] == [one.links for one in alone.events if isinstance(one, Stored)]
    assert len(stored.links) == 16


values = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=9) | st.binary(max_size=9) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=9,
)


@given(values, values, st.sampled_from([None, "", "sql"]), st.booleans())
def test_all_decoders_agree(label: Any, extra_keys: Any, lora: str | None, links: bool) -> None:
    linker = Linker(b"a key of a fleet") if links else None
    for event in (
        in_map(cache_salt=label, lora_name=lora),
        in_map(extra_keys=extra_keys, lora_name=lora),
        in_map(extra_keys=[extra_keys, None], lora_name=lora),
        in_map(cache_salt=label, extra_keys=[[extra_keys, "SALT"], None], lora_name=lora),
    ):
        decoded(event, linker)
