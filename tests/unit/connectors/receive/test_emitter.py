"""Several emitters on one socket, numbered together: each sees its own batches, and all see every number."""

from __future__ import annotations

import msgspec
import pytest

from connectors.frames.bundle import Frames
from connectors.order.sequence import StoredPosition
from connectors.order.stream import SourceStream
from connectors.receive.emitter import Emitter
from connectors.sources import Source
from schemas.events import Cleared, Closed, Event, Gap, Opened, Stored, Undecodable
from schemas.hashes import unpack_hashes
from schemas.settings import Connector
from tests.support.inputs.captures import captured_frames, captured_truth
from tests.support.inputs.event_records import events_in
from tests.support.replica_agent import ReplicaAgent, held_in

COORDINATOR, EVICTOR = "lmcache-4768-coordinator", "llmd-2026.06-models"
NOW = 1_800_000_000.0
A, B = "kv@a@m", "kv@b@m"


class Reader:
    """The stream of one emitter, and what a worker makes of it."""

    def __init__(self, topic: str, resume: StoredPosition | None = None) -> None:
        source = Source(topic, 0, "m", "t", "m/s/t", "tcp://x:1", topic=topic, shared_sequence=True)
        self.emitter = Emitter(topic)
        self.stream = SourceStream(source, Connector(), clock=lambda: NOW, resume=resume)
        self.topic = topic
        self.agent = ReplicaAgent()

    def hear(self, *messages: Frames) -> Reader:
        self.agent.apply(*self.stream.feed_all(self.emitter.view(messages), NOW), *self.stream.flush())
        return self

    @property
    def events(self) -> list[Event]:
        return events_in(self.agent.log)

    @property
    def numbers(self) -> list[int]:
        batches = [batch for record in self.agent.log for batch in record.batches]
        return [batch.seq for batch in batches if batch.seq is not None]

    @property
    def trust(self) -> str:
        return self.agent.source(self.topic).overall_trust().trust

    def held(self) -> set[tuple[str, int]]:
        """(medium, block) of all that is resident, each with one copy."""
        source, found = self.agent.source(self.topic), set()
        for medium, group in {(row.medium, row.group_idx) for row in source.occupancy()}:
            held = held_in(source, medium, group)
            assert {*held.values()} <= {1}
            found |= {(medium, block) for block in held}
        return found


def message(topic: str, seq: int, *events: object, ts: float = NOW) -> list[bytes]:
    return [topic.encode(), seq.to_bytes(8, "big"), msgspec.msgpack.encode([ts + seq, events])]


def stored(block: int) -> list[object]:
    return ["BlockStored", [block], None, [], 16, None, "lmcache-l1"]


def test_each_emitter_of_lmcaches_coordinator_holds_what_its_truth_says() -> None:
    frames, truth = captured_frames(COORDINATOR), captured_truth(COORDINATOR)["final"]
    assert len({frame[0] for frame in frames}) == len(truth) == 3
    for topic, held in truth.items():
        reader = Reader(topic).hear(*frames)
        expected = {
            ("cpu" if medium == "lmcache-l1" else medium, int(block[-16:], 16)) for medium, block in held
        }
        assert reader.held() == expected
        assert reader.numbers == [*range(len(frames))]
        assert (reader.trust, reader.agent.log[-1].engine) == ("complete", "lmcache")
        assert not reader.stream.counts.undecodable


def test_a_fenced_emitter_clears_all_that_it_has_and_nobody_elses() -> None:
    frames = captured_frames(COORDINATOR)
    assert any(b"AllBlocksCleared" in frame[2] for frame in frames)
    for topic in captured_truth(COORDINATOR)["final"]:
        clears = [event for event in Reader(topic).hear(*frames).events if isinstance(event, Cleared)]
        assert clears == ([Cleared("")] if topic.startswith("kv@node:a@") else [])


def test_llm_ds_evictor_removes_from_the_model_that_it_names() -> None:
    frames, truth = captured_frames(EVICTOR), captured_truth(EVICTOR)
    own = Reader("kv@SHARED_STORAGE@org/model-x").hear(*frames)
    assert own.held() == {("storage", block) for block in truth["final_cached"]}
    assert own.stream.counts.lost_batches == 0
    for model, removed in truth["removed"].items():
        reader = Reader(f"kv@SHARED_STORAGE@{model}").hear(*frames)
        events = [event for event in reader.events if not isinstance(event, Opened | Stored)]
        blocks = [block for event in events for block in unpack_hashes(event.hashes)]  # type: ignore[union-attr]
        assert blocks == removed


def test_a_lost_message_is_a_gap_for_all_of_them() -> None:
    messages = [message((A, B)[seq % 2], seq, stored(seq)) for seq in range(8)]
    for topic in (A, B):
        reader = Reader(topic).hear(*messages[:4], *messages[5:])
        assert [event for event in reader.events if isinstance(event, Gap)] == [
            Gap(4, 4, "replay_not_configured")
        ]
        assert reader.trust == "degraded"


@pytest.mark.parametrize("payload", [b"\xc1", b"", msgspec.msgpack.encode({"a": 1})])
def test_what_nobody_understands_behind_a_loss_is_no_part_of_the_gap(payload: bytes) -> None:
    before = [message((A, B)[seq % 2], seq, stored(seq)) for seq in range(4)]
    broken = [[B.encode(), seq.to_bytes(8, "big"), payload] for seq in (5, 6, 8)]
    after = [message(A, 9, stored(9)), message(B, 10, stored(10))]
    for topic in (A, B):
        reader = Reader(topic).hear(*before, *broken[:1]).hear(*broken[1:], *after)
        lost = [(event.first, event.last) for event in reader.events if isinstance(event, Gap)]
        assert lost == [(4, 4), (7, 7)]
        assert reader.stream.counts.lost_batches == 2
        assert reader.numbers == [0, 1, 2, 3, 5, 6, 8, 9, 10]
        assert sum(reader.stream.counts.undecodable.values()) == (3 if topic == B else 0)
        assert reader.trust == "degraded"


@pytest.mark.parametrize("numbers", [(9,), (5, 9), (7, 5), (3,), (2**64 - 1,)])
def test_a_wrong_number_of_what_nobody_understands_hides_no_loss(numbers: tuple[int, ...]) -> None:
    """Unless the next batch is behind it."""
    before = [message((A, B)[seq % 2], seq, stored(seq)) for seq in range(4)]
    broken = [[B.encode(), seq.to_bytes(8, "big"), b"\xc1"] for seq in numbers]
    after = [message(A, 4, stored(4)), message(A, 10, stored(10))]
    for topic in (A, B):
        reader = Reader(topic).hear(*before, *broken, *after)
        assert [event for event in reader.events if isinstance(event, Gap)] == [
            Gap(5, 9, "replay_not_configured")
        ]


def test_a_publisher_that_begins_anew_ends_the_lives_of_all() -> None:
    first = [message((A, B)[seq % 2], seq, stored(seq)) for seq in range(5)]
    anew = message(B, 0, stored(9), ts=NOW + 1000)
    reader = Reader(A).hear(*first).hear(anew)
    assert [event for event in reader.events if isinstance(event, Closed)] == [Closed("restarted")]
    assert reader.held() == set()


@pytest.mark.parametrize("payload", [b"\xc1", b"", msgspec.msgpack.encode({"a": 1}), b"\x92\xcb\x00"])
@pytest.mark.parametrize("seq", [0, 3, 4, 9])
def test_what_nobody_understands_of_one_emitter_harms_no_other(payload: bytes, seq: int) -> None:
    messages = [message((A, B)[number % 2], number, stored(number)) for number in range(4)]
    broken = [B.encode(), seq.to_bytes(8, "big"), payload]
    others = [message(A, 4 + (seq == 4), stored(7)), message(A, 5 + (seq == 4), stored(8))]
    good, bad = Reader(A).hear(*messages, broken, *others), Reader(B).hear(*messages, broken, *others)
    assert good.trust == "complete"
    assert not [event for event in good.events if isinstance(event, Undecodable | Gap | Closed)]
    assert bad.trust == "degraded"


def test_frames_without_a_number_and_bad_events_are_their_emitters_own() -> None:
    rubbish = message(B, 1, ["BlockBent", 7], 12)
    for frames in ([[B.encode()], [B.encode(), b"x", b"y"], [B.encode(), b"12345678", b"", b""]], [rubbish]):
        good, bad = Reader(A).hear(message(B, 0), *frames), Reader(B).hear(message(B, 0), *frames)
        assert (good.trust, bad.trust) == ("complete", "degraded")
        assert not good.stream.counts.undecodable


def test_a_connector_that_is_killed_goes_on_with_every_emitter_where_the_log_ends() -> None:
    """Nothing published meanwhile: nothing lost, whoever spoke last. Something published: lost for all."""
    messages = [message((A, B)[seq > 0], seq, stored(seq)) for seq in range(9)]
    for topic in (A, B):
        before = Reader(topic).hear(*messages[:6])
        last = before.agent.log[-1]
        assert last.last_seq == 5
        stored_at = StoredPosition(last.incarnation, last.last_seq, last.last_fingerprint)
        after = Reader(topic, stored_at).hear(*messages[6:])
        assert after.numbers == [6, 7, 8]
        assert not [event for event in after.events if isinstance(event, Gap | Closed | Opened)]
        late = Reader(topic, stored_at).hear(*messages[8:])
        assert [event for event in late.events if isinstance(event, Gap)] == [
            Gap(6, 7, "replay_not_configured")
        ]
