"""The newest advice, polled by a thread of its own, because an answer takes a second or two."""

from __future__ import annotations

import threading
import time

from connectors.process.errors import OperatorError
from pipeline.advice.reading import Advice, latest_range, read_advice
from pipeline.clickhouse.client import connect, store_unavailable
from schemas.settings import ClickHouse

_LEAVING_SECONDS = 1.0


class AdviceWatch:
    """`latest` is what the store answered last, None until it has answered."""

    def __init__(self, store: ClickHouse, range_seconds: int, every_seconds: float) -> None:
        self.latest: Advice | None = None
        self._store = store
        self._range = range_seconds
        self._every = every_seconds
        self._stopping = threading.Event()
        # A daemon: a store that does not answer must not keep the process from ending.
        self._thread = threading.Thread(target=self._watch, name="advice", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop polling; returns soon, whatever the store does."""
        self._stopping.set()
        self._thread.join(_LEAVING_SECONDS)

    def _watch(self) -> None:
        while not self._stopping.wait(self._every):
            try:
                self.latest = self._asked()
            except OperatorError:
                continue  # it may pass: a killed store is restarted, a missing password written

    def _asked(self) -> Advice:
        client = connect(self._store)
        try:
            with store_unavailable(self._store):
                return read_advice(client, self._store.database, *latest_range(time.time(), self._range))
        finally:
            client.close()
