"""Fetches Kafka's jars, so that tests which start brokers side by side do not all fetch them.

Run as a module before them; what cannot be had is said by the tests that need it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pipeline.local.broker.jars import JarsUnavailable, read_lock, verified_jars


def main() -> None:
    with suppress(JarsUnavailable):
        verified_jars(read_lock(), Path("build/jars"), lambda step: None)


if __name__ == "__main__":
    main()
