"""Logging on before any client does: what may heal, and what it says."""

from __future__ import annotations

import pytest

from connectors.kafka.errors import BrokerUnreachable
from connectors.kafka.reach import reach
from schemas.settings import Kafka


async def test_a_name_that_does_not_resolve_yet_may_heal() -> None:
    with pytest.raises(BrokerUnreachable) as raised:
        await reach(Kafka(bootstrap_servers="kafka.invalid:9093"))
    assert raised.value.heals
    assert str(raised.value).startswith("no Kafka broker answers at kafka.invalid:9093 (")
    assert "AddressFamily" not in str(raised.value)
