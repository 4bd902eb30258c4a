"""One event stream of the fleet: an engine rank, the sockets it publishes on, and its truth."""

from __future__ import annotations

from typing import Any

from pipeline.simulator.engine.scheduler import Engine
from pipeline.simulator.engine.settings import EngineSettings
from pipeline.simulator.engine.truth import CHECKPOINT_COLUMNS, checkpoint, engine_truth
from pipeline.simulator.publisher import Publisher
from pipeline.simulator.traffic.requests import Request
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.simulator.wire.eras import Era
from pipeline.simulator.wire.hashing import HashForm


class Source:
    """A (replica, DP rank); `restart` begins a session, as a new engine process on the same addresses."""

    def __init__(
        self,
        replica: str,
        settings: EngineSettings,
        era: Era,
        publisher: Publisher,
        hash_form: HashForm | None = None,
        checkpoints: bool = False,
        snapshot_sequences: frozenset[int] = frozenset(),
    ) -> None:
        self.replica = replica
        self.rank = publisher.settings.rank
        self.era = era
        self.hash_form = hash_form or era.hash_form
        self.publisher = publisher
        self._keep_checkpoints = checkpoints
        self._snapshot_sequences = snapshot_sequences
        self._past_sessions: list[dict[str, Any]] = []
        self._to_lose = 0
        self._begin(settings)

    def _begin(self, settings: EngineSettings) -> None:
        # SGLang's flush empties HiCache's host pool, too.
        self.engine = Engine(settings, clears_cpu=self.era.engine == "sglang")
        self._checkpoints: list[list[int]] = []
        self._snapshots: dict[str, dict[str, Any]] = {}
        if self.era.engine == "sglang":
            # SGLang's radix cache resets itself when constructed: a session begins with AllBlocksCleared.
            self.engine.reset_prefix_cache()

    def submit(self, request: Request) -> None:
        """Queue a request. Raises RequestTooLargeError."""
        self.engine.submit(request)

    def step(self, now: float) -> int | None:
        """Run one engine step; publish its batch, if it had events, with time `now`; return the sequence."""
        events = self.engine.step()
        if not events:
            return None
        if self._to_lose:
            self._to_lose -= 1
            sequence = self.publisher.skip()
        else:
            sequence = self.publisher.publish(encoded_batch(self.era, now, events, self.rank, self.hash_form))
        if self._keep_checkpoints:
            self._checkpoints.append(checkpoint(self.engine, sequence))
        if sequence in self._snapshot_sequences:
            self._snapshots[str(sequence)] = self._state()
        return sequence

    def lose_next(self, count: int) -> None:
        """Lose the next `count` batches, live and in replay."""
        self._to_lose += count

    def restart(self) -> None:
        """Begin a new engine session: empty cache, sequence 0."""
        self._past_sessions.append(self._session())
        self.publisher.restart()
        self._begin(self.engine.settings)

    def truth(self) -> dict[str, Any]:
        """Return the truth of all engine sessions of this source, the present one last."""
        return {
            "replica": self.replica,
            "dp_rank": self.rank,
            "era": self.era.name,
            "hash_form": self.hash_form,
            "checkpoint_columns": CHECKPOINT_COLUMNS,
            "lives": [*self._past_sessions, self._session()],
        }

    def _state(self) -> dict[str, Any]:
        return engine_truth(self.engine, self.hash_form, self.publisher.last_sequence)

    def _session(self) -> dict[str, Any]:
        return {**self._state(), "checkpoints": self._checkpoints, "snapshots": self._snapshots}
