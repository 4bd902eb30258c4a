"""From the sockets to the streams: finds the stream of each message, and publishes what follows."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence

from connectors.discovery.follow import Follower
from connectors.normalise.forwarding import Forwarding
from connectors.normalise.scanned import Scanned
from connectors.order.gathered import Gathered
from connectors.order.stream import SourceStream
from connectors.order.together import gathered_together, scanned_together
from connectors.receive.hand_over import HandOver
from connectors.receive.received import Key, PendingPeers, Received, Together
from connectors.replay.requests import ReplayRequests
from connectors.sources import Peer, SourceKey
from schemas.events import EventsRecord
from schemas.settings import Connector


class Dealing:
    """Feeds received messages to the streams of their sources, and publishes the records that these close."""

    def __init__(
        self,
        settings: Connector,
        streams: Mapping[SourceKey, SourceStream],
        gathered: Gathered,
        hand_over: HandOver,
        follower: Follower,
        replay_requests: ReplayRequests,
        publish: Callable[[Iterable[EventsRecord]], None],
        ended: Callable[[SourceKey], None],
    ) -> None:
        """`ended` is called after the last message of a source that the subscriber has removed.

        Raises KeyUnusable.
        """
        self._settings = settings
        self.forwarding = Forwarding.of(settings)
        self.scans = False
        """Whether compiled code scans messages; set once it is loaded."""
        self._streams = streams
        self._gathered = gathered
        self._hand_over = hand_over
        self._follower = follower
        self._replay_requests = replay_requests
        self._publish = publish
        self._ended = ended
        self._pending = PendingPeers()

    def begun(self, stream: SourceStream) -> None:
        """Feed a new stream the messages that its engine sent before reading began."""
        began = time.thread_time()
        for received in self._pending.take(stream.source.key):
            self._feed(stream, received)
        stream.counts.seconds += time.thread_time() - began

    def release_pending(self, expected: Collection[SourceKey]) -> None:
        """Release the messages of engines that connected but will not be read after all."""
        for received in self._pending.take_others(expected):
            self._hand_over.release(received.size)

    def deal(self, portions: Sequence[Received]) -> Iterator[float]:
        """Feed portions to their streams, and publish the records; yield the seconds that each one took."""
        worked = time.thread_time()
        streams = [self._stream_of(received) for received in portions]
        scanned: Sequence[Scanned | None] = [None] * len(portions)
        slots: Mapping[int, int] = {}
        seconds_a_byte = 0.0
        if self.scans and len(portions) > 1:
            bundles = [received.messages for received in portions]
            received_at = [received.received_at for received in portions]
            scanned, slots = scanned_together(
                streams, bundles, received_at, self._gathered, self._settings, self.forwarding
            )
            scanning = time.thread_time() - worked
            seconds_a_byte = scanning / max(sum(received.size for received in portions), 1)
            worked += scanning
        for number, (received, stream) in enumerate(zip(portions, streams, strict=True)):
            slot = slots.get(number)
            if slot is not None and stream is not None:
                if received.left_out:
                    stream.counts.left_out["paused"] += received.left_out
                self._hand_over.release(received.size)
            elif stream is not None:
                self._feed(stream, received, scanned[number])
            elif received.last and not isinstance(received.source, Peer):
                self._ended(received.source)
            now = time.thread_time()
            seconds = now - worked + seconds_a_byte * received.size
            worked = now
            if slot is not None:
                # Reading `counts` would make the stream take what is gathered in its slot.
                self._gathered.charge(slot, seconds)
            elif stream is not None:
                stream.counts.seconds += seconds
            yield seconds

    def gather(self, together: Together, waiting: Container[Key]) -> tuple[list[Received], float]:
        """Gather messages that are just the next of their source; return the rest and the seconds taken."""
        began = time.thread_time()
        others, slots, sizes = gathered_together(
            [None if source in waiting else source for source in together.sources],
            together.bundles,
            together.received_at,
            self._gathered,
            self._settings,
            self.forwarding,
        )
        worked = time.thread_time()
        seconds_a_byte = (worked - began) / together.bundles.data.size
        self._gathered.charge(slots, sizes * seconds_a_byte)
        done, rest = together.size, []
        for number, scanned in others:
            received = together.of(number)
            done -= received.size
            seconds = seconds_a_byte * received.messages.size
            stream = self._streams.get(together.sources[number])
            if scanned is None:
                rest.append(received)
            elif stream is not None:
                self._feed(stream, received, scanned)
                now = time.thread_time()
                seconds, worked = seconds + now - worked, now
            if stream is not None:
                stream.counts.seconds += seconds
        self._hand_over.release(done)
        return rest, time.thread_time() - began

    def _stream_of(self, received: Received) -> SourceStream | None:
        """Return the stream of the messages; None if they are refused, kept for later, or end a source."""
        if not isinstance(received.source, Peer):
            return None if received.last else self._streams[received.source]
        source = self._follower.source_of(received.source, len(received.messages), received.received_at)
        if source is None:
            self._hand_over.release(received.size)
            return None
        stream = self._streams.get(source.key)
        if stream is not None and stream.source.topic == source.topic:
            return stream
        self._pending.add(source.key, received)
        return None

    def _feed(self, stream: SourceStream, received: Received, scanned: Scanned | None = None) -> None:
        messages = received.messages if self.scans else list(received.messages)
        if received.messages:
            self._publish(stream.feed_all(messages, received.received_at, scanned))
        if received.left_out:
            stream.counts.left_out["paused"] += received.left_out
        self._replay_requests.send_wanted(stream)
        self._hand_over.release(received.size)
