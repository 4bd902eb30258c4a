"""How long the event loop of a process makes others wait, seen from outside."""

from __future__ import annotations

import http.client
import threading
import time

EVERY_SECONDS = 0.05
"""Asking costs the process half a percent of a core."""
TIMEOUT_SECONDS = 60.0


class Pauses:
    """Asks /livez again and again while the block lasts: the loop answers when it turns."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.longest = 0.0
        """Seconds; what the process waits for a core is in it."""

    def __enter__(self) -> Pauses:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._connection.close()

    def _ask(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            began = time.monotonic()
            self._connection.request("GET", "/livez")
            self._connection.getresponse().read()
            self.longest = max(self.longest, time.monotonic() - began)
