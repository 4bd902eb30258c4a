"""Kafka settings as the arguments that aiokafka's clients take."""

from __future__ import annotations

import ssl
from typing import Any

from aiokafka.helpers import create_ssl_context

from schemas.settings import Kafka


class CertificateUnreadable(Exception):
    """A TLS file of the settings cannot be used."""

    def __init__(self, files: tuple[str, ...], reason: str) -> None:
        super().__init__(files, reason)
        self.files = files
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot use the TLS files {', '.join(self.files)} of [kafka]: {self.reason}"


def client_arguments(settings: Kafka) -> dict[str, Any]:
    """Return address, TLS and SASL arguments for an aiokafka client.

    Reads the certificate files; raises CertificateUnreadable.
    """
    arguments: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers,
        "security_protocol": settings.security_protocol,
    }
    if settings.security_protocol.startswith("SASL_"):
        arguments["sasl_mechanism"] = settings.sasl_mechanism
        arguments["sasl_plain_username"] = settings.sasl_username
        arguments["sasl_plain_password"] = settings.sasl_password
    if settings.security_protocol.endswith("SSL"):
        arguments["ssl_context"] = _ssl_context(settings)
    return arguments


def _ssl_context(settings: Kafka) -> ssl.SSLContext:
    try:
        context: ssl.SSLContext = create_ssl_context(
            cafile=settings.ssl_cafile or None,
            certfile=settings.ssl_certfile or None,
            keyfile=settings.ssl_keyfile or None,
        )
    except (OSError, ssl.SSLError) as error:
        files = (settings.ssl_cafile, settings.ssl_certfile, settings.ssl_keyfile)
        raise CertificateUnreadable(tuple(name for name in files if name), str(error)) from error
    return context
