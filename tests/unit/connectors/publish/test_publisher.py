"""What the publisher does without a broker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from connectors.process.tls_files import CertificateUnreadable
from connectors.publish.publisher import Publisher
from schemas.settings import Kafka, Settings


class Told:
    def __init__(self) -> None:
        self.unreachable: list[str] = []

    def broker_unreachable(self, bootstrap_servers: str, reason: str) -> None:
        self.unreachable.append(reason)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


async def test_a_certificate_that_cannot_be_read_refuses_a_start_but_ends_nothing_later(
    tmp_path: Path,
) -> None:
    missing = str(tmp_path / "ca.pem")
    told = Told()
    publisher = Publisher(Settings(kafka=Kafka(security_protocol="SSL", ssl_cafile=missing)), told)
    with pytest.raises(CertificateUnreadable, match=missing):
        await publisher.start()
    # A producer broke down while the file is being replaced: the next try reads it again.
    await publisher._replace(None)
    assert len(told.unreachable) == 1
    assert missing in told.unreachable[0]


async def test_a_producer_that_breaks_down_is_stopped_when_nothing_of_others_is_in_flight_in_it() -> None:
    in_flight = asyncio.Event()
    stopped: list[object] = []

    class Broken:
        async def stop(self) -> None:
            await in_flight.wait()
            stopped.append(self)

    told = Told()
    publisher = Publisher(Settings(kafka=Kafka(bootstrap_servers="127.0.0.1:9")), told)
    broken: Any = Broken()
    publisher._producer = broken
    await publisher._replace(broken)
    assert len(told.unreachable) == 1
    in_flight.set()
    await asyncio.sleep(0.01)
    assert stopped == [broken]
