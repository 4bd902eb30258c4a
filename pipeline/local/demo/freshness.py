"""How long an engine's batch takes until a query sees it, measured from outside on both ends."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence

import zmq

Source = tuple[str, int]
"""(replica, dp_rank)."""

MAX_SAMPLES = 100_000


class FreshnessMeter:
    """Seconds from the publication of each batch to the first query that saw its source at or beyond it."""

    def __init__(self) -> None:
        self._waiting: dict[Source, deque[tuple[int, float]]] = {}
        self._newest: dict[Source, int] = {}
        """Number of the last batch that each source published."""
        self._samples: deque[float] = deque(maxlen=MAX_SAMPLES)

    def published(self, source: Source, seq: int, at: float) -> None:
        """Note a batch that arrived; a sequence number that goes back begins a new engine session."""
        waiting = self._waiting.setdefault(source, deque(maxlen=MAX_SAMPLES))
        if seq <= self._newest.get(source, -1):
            waiting.clear()
        self._newest[source] = seq
        waiting.append((seq, at))

    def queryable(self, last_seqs: Mapping[Source, int], at: float) -> None:
        """Note that a query, answered at `at`, saw the sources at these sequence numbers."""
        for source, last_seq in last_seqs.items():
            newest = self._newest.get(source)
            if newest is None or last_seq > newest:
                continue  # the table still has the engine session before
            waiting = self._waiting[source]
            while waiting and waiting[0][0] <= last_seq:
                self._samples.append(at - waiting.popleft()[1])

    def quantile(self, share: float) -> float | None:
        """Seconds within which this share of the batches was visible; None before the first one."""
        if not self._samples:
            return None
        ordered = sorted(self._samples)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class PublicationProbe:
    """Subscribes to the engines beside the connector and notes when each batch was published."""

    def __init__(self, endpoints: Sequence[tuple[Source, str]], meter: FreshnessMeter) -> None:
        self._meter = meter
        self._context = zmq.Context()
        self._sockets: list[tuple[Source, zmq.Socket[bytes]]] = []
        for source, endpoint in endpoints:
            socket = self._context.socket(zmq.SUB)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.SUBSCRIBE, b"")
            socket.connect(endpoint)
            self._sockets.append((source, socket))

    def drain(self, seconds: float) -> None:
        """Note what arrives within `seconds`; batches are dated when read, so call this without pauses."""
        poller = zmq.Poller()
        names = {socket: source for source, socket in self._sockets}
        for socket in names:
            poller.register(socket, zmq.POLLIN)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            for socket, _ in poller.poll(int(left * 1000) + 1):
                parts = socket.recv_multipart()
                if len(parts) == 3:
                    self._meter.published(names[socket], int.from_bytes(parts[1], "big"), time.time())

    def close(self) -> None:
        for _, socket in self._sockets:
            socket.close()
        self._context.term()
