"""A log of its own for each test, and indexes that end with it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipeline.local.broker.embedded import EmbeddedBroker
from schemas.settings import Index, Kafka, Settings
from tests.support.index_service import IndexLog, IndexProcess, index_process
from tests.support.suite.servers import Shared


@pytest.fixture
def log(broker: EmbeddedBroker) -> IndexLog:
    prefix = f"index-{secrets.token_hex(4)}"
    kafka = Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=prefix, group=prefix)
    made = IndexLog(Settings(kafka=kafka, index=Index(port=0)))
    made.prepare()
    return made


@pytest.fixture
def start(log: IndexLog, shared: Shared, tmp_path: Path) -> Iterator[Callable[..., IndexProcess]]:
    """Start an index of the log, with other settings of `[index]` if asked."""
    begun: list[IndexProcess] = []

    def new(ready: bool = True, **changes: Any) -> IndexProcess:
        settings = log.settings
        if changes:
            settings = msgspec.structs.replace(
                settings, index=msgspec.structs.replace(settings.index, **changes)
            )
        index = index_process(settings, tmp_path, f"index-{len(begun)}", shared=shared)
        begun.append(index)
        if ready:
            index.wait_said("caught up with the log")
        return index

    yield new
    for index in begun:
        index.close()
