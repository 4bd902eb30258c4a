"""Nothing of a prompt leaves the decoder: tokens, salts, multimodal keys and text are planted everywhere."""

from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from connectors.frames.bundle import Bundle
from connectors.normalise.forwarding import Forwarding
from connectors.normalise.links import Linker
from connectors.normalise.normaliser import FIRST_LOOKS, Normaliser
from connectors.normalise.pseudonyms import KeyUnusable, Pseudonyms
from connectors.order.stream import SourceStream
from connectors.sources import Source
from schemas.events import Batch, Stored
from schemas.settings import Connector
from tests.support.inputs.event_records import events_in
from tests.support.wire import STORED_FIELDS

SALT = "SALT-5f3c9a"
PROMPT = "PROMPT my dear aunt lives in"
MM_KEY = "MMKEY" + "ab12" * 8
EMBED_DIGEST = b"EMBED-digest-of-a-prompt"
SESSION = "SESSION-chat-of-alice"
SECRETS = [text.encode() for text in (SALT, PROMPT, MM_KEY, SESSION)] + [EMBED_DIGEST]

TOKENS = [0x7EAC0001 + n for n in range(32)]
"""Five bytes each in MessagePack, so that they are easily found."""
TOKEN_BYTES = [token.to_bytes(4, "big") for token in TOKENS]

EXTRA_KEYS = [["adapter", [MM_KEY, -7], SALT, EMBED_DIGEST, PROMPT], None]
UNKNOWN = {"text": PROMPT, "ids": TOKENS, "deep": [[{SALT: [EMBED_DIGEST, MM_KEY]}]], MM_KEY: SESSION}

HASHES = [2**63 + 1, 2**63 + 2]


IN_MAP = {
    "type": "BlockStored",
    "block_hashes": HASHES,
    "parent_block_hash": 5,
    "token_ids": TOKENS,
    "block_size": 16,
    "lora_id": None,
    "medium": "GPU",
    "lora_name": "adapter",
    "extra_keys": EXTRA_KEYS,
    "group_idx": 0,
    "kv_cache_spec_kind": "full_attention",
    "session_id": SESSION,
    "lookahead_token_ids": TOKENS,
    "cache_salt": SALT,
    "prompt": PROMPT,
    "from_the_future": UNKNOWN,
}


def in_array(length: int, *more: Any) -> list[Any]:
    return [*[IN_MAP.get(name) for name in STORED_FIELDS][:length], *more]


UNLABELLED = {key: value for key, value in IN_MAP.items() if key != "cache_salt"}
REMOVED = {"type": "BlockRemoved", "block_hashes": HASHES, "medium": "GPU", "cache_salt": SALT, "x": UNKNOWN}
CLEARED = {"type": "AllBlocksCleared", "token_ids": TOKENS, "why": PROMPT}

PAIRS = [[token, token] for token in TOKENS]

GOOD = [
    *(in_array(length) for length in (5, 6, 7, 8, 9, 10, 12)),
    in_array(12, "LOCAL", None, SESSION, TOKENS, UNKNOWN),
    ["BlockStored", [-1], None, PAIRS, 16, None, "GPU", {"cache_salt": SALT, "m": UNKNOWN}],
    IN_MAP,
    UNLABELLED,
    ["BlockRemoved", HASHES, "GPU", 0, SALT, UNKNOWN],
    REMOVED,
    ["AllBlocksCleared", TOKENS, PROMPT],
    CLEARED,
]
BAD = [
    [PROMPT, TOKENS, SALT],
    {"type": PROMPT, "token_ids": TOKENS},
    {"token_ids": TOKENS, "cache_salt": SALT},
    TOKENS,
    PROMPT,
    EMBED_DIGEST,
    UNKNOWN,
    in_array(4),
    ["BlockStored", TOKENS, PROMPT, TOKENS, SALT],
    ["BlockStored", [SALT, MM_KEY], 5, TOKENS, 16],
    IN_MAP | {"block_size": PROMPT},
    IN_MAP | {"block_hashes": EXTRA_KEYS},
    IN_MAP | {"parent_block_hash": PROMPT},
    IN_MAP | {"medium": [SALT]},
    IN_MAP | {"group_idx": PROMPT},
    IN_MAP | {"lora_name": EXTRA_KEYS},
    IN_MAP | {"cache_salt": [SALT, PROMPT]},
    IN_MAP | {"cache_salt": EMBED_DIGEST},
    UNLABELLED | {"extra_keys": [[[SALT, PROMPT], {PROMPT: SALT}]]},
    REMOVED | {"block_hashes": PROMPT},
]
ENVELOPES = [
    lambda events: [1.5, events, 0],
    lambda events: [1.5, events, PROMPT, TOKENS, UNKNOWN],
    lambda events: {"ts": 1.5, "events": events, "prompt": PROMPT, "token_ids": TOKENS, "x": UNKNOWN},
    lambda events: [PROMPT, events, 0],
]


def batches(payload: bytes, **options: Any) -> list[Batch]:
    """Decode as a stream's first batches (event by event), as later ones, and scanned where possible."""
    normaliser = Normaliser(max_frame_bytes=1 << 20, forwarding=Forwarding(**options))
    result = [normaliser.normalise(payload, seq=seq, received_at=2.0) for seq in range(FIRST_LOOKS + 2)]
    scanned = normaliser.scan(Bundle.of([(b"t", bytes(8), payload)]), 2.0).encoded.tobytes()
    return [*result, msgspec.msgpack.decode(scanned, type=Batch)] if scanned else result


def assert_nothing_leaked(batch: Batch, *allowed: bytes) -> None:
    for encoded in (msgspec.msgpack.encode(batch), msgspec.json.encode(batch)):
        for secret in SECRETS:
            assert secret in allowed or secret not in encoded
        for token, packed in zip(TOKENS, TOKEN_BYTES, strict=True):
            assert packed not in encoded
            assert str(token).encode() not in encoded


SALT_KEY = b"SALT-KEY-5f3c9a77"
NAMES = [None, Pseudonyms(SALT_KEY)]
LINKERS = [None, Linker(b""), Linker(b"CONTENT-KEY-5f3c9a")]


@pytest.mark.parametrize("event", [*GOOD, *BAD])
def test_no_secret_of_an_event_leaves(event: Any) -> None:
    for envelope, linker, salts in product(ENVELOPES, LINKERS, NAMES):
        for batch in batches(msgspec.msgpack.encode(envelope([event])), linker=linker, salts=salts):
            assert batch.events
            assert_nothing_leaked(batch)
            assert b"CONTENT-KEY-5f3c9a" not in msgspec.msgpack.encode(batch)
            assert SALT_KEY not in msgspec.msgpack.encode(batch)


def test_salts_are_there_and_follow_from_the_key() -> None:
    for event in (IN_MAP, UNLABELLED):
        payload = msgspec.msgpack.encode([1.5, [event], 0])
        found = [
            {event.salt for batch in batches(payload, salts=names) for event in batch.events}  # type: ignore[union-attr]
            for names in (*NAMES, Pseudonyms(b"another key of a fleet"))
        ]
        assert found[0] == {None}
        assert found[1] == {blake2b(SALT.encode(), digest_size=8, key=SALT_KEY).hexdigest()}
        assert len(found[2]) == 1
        assert found[2] != found[1]


def test_links_are_there_and_follow_from_the_key() -> None:
    payload = msgspec.msgpack.encode([1.5, [IN_MAP], 0])
    links = [
        {event.links for batch in batches(payload, linker=linker) for event in batch.events}  # type: ignore[union-attr]
        for linker in LINKERS
    ]
    assert links[0] == {b""}
    assert all(len(found) == 1 and len(next(iter(found))) == 8 * len(HASHES) for found in links[1:])
    assert links[1] != links[2]


@pytest.mark.parametrize("event", GOOD)
def test_good_events_are_scanned(event: Any) -> None:
    assert len(batches(msgspec.msgpack.encode([1.5, [event], 0]))) == FIRST_LOOKS + 3


def test_no_secret_leaves_a_batch_of_all_kinds() -> None:
    for events in (GOOD, BAD, [*GOOD, *BAD]):
        for envelope in ENVELOPES:
            for batch in batches(msgspec.msgpack.encode(envelope(events))):
                assert batch.engine_events == len(events)
                assert_nothing_leaked(batch)


@pytest.mark.parametrize(
    "payload", [PROMPT, TOKENS, UNKNOWN, [PROMPT, TOKENS], {"ts": PROMPT, "token_ids": TOKENS}]
)
def test_no_secret_leaves_a_bad_frame(payload: Any) -> None:
    encoded = msgspec.msgpack.encode(payload)
    for frame in (encoded, encoded[:-1], encoded + b"\0"):
        for batch in batches(frame):
            assert_nothing_leaked(batch)


def test_session_ids_and_salts_leave_as_keyed_hashes_and_on_demand() -> None:
    payload = msgspec.msgpack.encode([1.5, [IN_MAP, REMOVED, CLEARED], 0])
    key = b"0123456789abcdef"
    for batch in batches(payload, sessions=Pseudonyms(key), salts=Pseudonyms(key)):
        (stored, *_) = batch.events
        assert isinstance(stored, Stored)
        assert stored.session == blake2b(SESSION.encode(), digest_size=8, key=key).hexdigest()
        assert stored.salt == blake2b(SALT.encode(), digest_size=8, key=key).hexdigest()
        assert_nothing_leaked(batch)
        assert key not in msgspec.msgpack.encode(batch)


@pytest.mark.parametrize("name", ["chat-1", "", "x" * 1024])
def test_the_name_of_a_session_is_that_of_its_key_and_of_no_other(name: str) -> None:
    one, other = Pseudonyms(b"a" * 16), Pseudonyms(b"b" * 100)
    assert one.name(name) == Pseudonyms(b"a" * 16).name(name) != other.name(name)
    assert one.name(name) != one.name(name + "x")
    assert Pseudonyms(b"b" * 101).name(name) != other.name(name)


def test_a_key_that_is_too_short_or_missing_is_no_key(tmp_path: Path) -> None:
    file = tmp_path / "key"
    with pytest.raises(KeyUnusable, match="No such file"):
        Pseudonyms.of_file(str(file), "connector.session_key_file")
    file.write_bytes(b"short\n")
    with pytest.raises(KeyUnusable, match="at least 16 bytes"):
        Pseudonyms.of_file(str(file), "connector.session_key_file")
    file.write_bytes(b"a" * 16 + b"\n")
    assert Pseudonyms.of_file(str(file), "connector.session_key_file").name("s") == Pseudonyms(
        b"a" * 16
    ).name("s")


def test_a_stream_names_sessions_one_by_one_and_scanned() -> None:
    source = Source("r", 0, "m", "t", "m/s/t", "tcp://x:1")
    stream = SourceStream(
        source, Connector(), clock=lambda: 2.0, forwarding=Forwarding(Pseudonyms(b"a" * 16))
    )
    payload = msgspec.msgpack.encode([1.5, [IN_MAP], 0])
    messages = [(b"t", seq.to_bytes(8, "big"), payload) for seq in range(50)]
    records = [*stream.feed_all(messages[:2], 2.0), *stream.feed_all(Bundle.of(messages[2:]), 2.0)]
    records += stream.flush()
    assert any(isinstance(record.batches, Raw) for record in records), "nothing was scanned"
    events = events_in(records)
    sessions = [event.session for event in events if isinstance(event, Stored)]
    assert sessions == [Pseudonyms(b"a" * 16).name(SESSION)] * 50
