"""Logging on before any client does: what may heal, and what it says."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.kafka.errors import BrokerUnreachable
from connectors.kafka.reach import reach
from connectors.process.errors import OperatorError
from pipeline.local.broker.embedded import EmbeddedBroker
from schemas.settings import Kafka


async def test_a_name_that_does_not_resolve_yet_may_heal() -> None:
    with pytest.raises(BrokerUnreachable) as raised:
        await reach(Kafka(bootstrap_servers="kafka.invalid:9093"))
    assert raised.value.heals
    assert str(raised.value).startswith("no Kafka broker answers at kafka.invalid:9093 (")
    assert "AddressFamily" not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"security_protocol": "SSL"}, "as a port without TLS does; kafka.security_protocol is SSL"),
        (
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_username": "kvlens",
                "sasl_password": "word",
            },
            "this port takes no login, and kafka.security_protocol is SASL_PLAINTEXT",
        ),
    ],
)
async def test_a_plain_broker_asked_for_tls_or_a_login_names_the_setting(
    broker: EmbeddedBroker, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(OperatorError) as raised:
        await reach(Kafka(bootstrap_servers=broker.bootstrap_servers, **settings))
    assert words in str(raised.value)
    assert broker.bootstrap_servers in str(raised.value)
    assert "\n" not in str(raised.value)
