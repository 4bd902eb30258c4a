"""One struct of settings, two mappings: aiokafka's options and Faust's credentials."""

from __future__ import annotations

from typing import Any

import pytest
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

from connectors.kafka.security import client_options
from pipeline.worker.consumer.app import faust_credentials
from schemas.settings import Kafka


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_faust_connects_as_every_other_client(protocol: Any) -> None:
    kafka = Kafka(
        security_protocol=protocol, sasl_mechanism="SCRAM-SHA-512", sasl_username="u", sasl_password="p"
    )
    ours = client_options(kafka)
    faust = credentials_to_aiokafka_auth(faust_credentials(kafka))
    assert ours["security_protocol"] == faust["security_protocol"] == protocol
    assert (ours.get("ssl_context") is not None) == protocol.endswith("SSL")
    assert (faust.get("ssl_context") is not None) == protocol.endswith("SSL")
    if ours.get("ssl_context") is not None:
        assert ours["ssl_context"].check_hostname
    for name in ("sasl_mechanism", "sasl_plain_username", "sasl_plain_password"):
        assert ours.get(name) == faust.get(name)
