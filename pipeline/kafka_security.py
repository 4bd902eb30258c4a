"""Kafka connection settings for aiokafka's clients and for Faust."""

from __future__ import annotations

import ssl
from typing import Any

from aiokafka.helpers import create_ssl_context
from faust.auth import Credentials, SASLCredentials, SSLCredentials

from schemas.settings import Kafka


def _ssl_context(kafka: Kafka) -> ssl.SSLContext | None:
    if kafka.security_protocol not in ("SSL", "SASL_SSL"):
        return None
    context: ssl.SSLContext = create_ssl_context(
        cafile=kafka.ssl_cafile or None,
        certfile=kafka.ssl_certfile or None,
        keyfile=kafka.ssl_keyfile or None,
    )
    return context


def client_options(kafka: Kafka) -> dict[str, Any]:
    """Return the keyword arguments that every aiokafka client needs to reach the brokers."""
    options: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "security_protocol": kafka.security_protocol,
        "ssl_context": _ssl_context(kafka),
    }
    if kafka.security_protocol.startswith("SASL"):
        options |= {
            "sasl_mechanism": kafka.sasl_mechanism,
            "sasl_plain_username": kafka.sasl_username,
            "sasl_plain_password": kafka.sasl_password,
        }
    return options


def faust_credentials(kafka: Kafka) -> Credentials | None:
    """Return the same settings as Faust's `broker_credentials`; None for plain text without login."""
    context = _ssl_context(kafka)
    if kafka.security_protocol.startswith("SASL"):
        return SASLCredentials(
            username=kafka.sasl_username,
            password=kafka.sasl_password,
            mechanism=kafka.sasl_mechanism,
            ssl_context=context,
        )
    return SSLCredentials(context) if context is not None else None
