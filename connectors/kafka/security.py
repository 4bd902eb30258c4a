"""Kafka settings as the arguments that aiokafka's clients take."""

from __future__ import annotations

import ssl
from typing import Any

import msgspec

from connectors.kafka.private import complete_the_login
from connectors.kafka.renewed import (
    RenewedContext,
    RenewedPassword,
    RenewedText,
    RenewedToken,
)
from connectors.process.tls_files import TlsFiles
from schemas.settings import Kafka, KafkaLogin

complete_the_login()

_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")


def client_options(settings: KafkaLogin) -> dict[str, Any]:
    """Return address, TLS and SASL arguments for an aiokafka client.

    Files are read now, and again for each connection that the client makes. Raises CertificateUnreadable.
    """
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers,
        "security_protocol": settings.security_protocol,
    }
    if settings.security_protocol.startswith("SASL_"):
        options["sasl_mechanism"] = settings.sasl_mechanism
        options |= _login(settings)
    if settings.security_protocol.endswith("SSL"):
        files = {setting: getattr(settings, setting) for setting in _FILES if getattr(settings, setting)}
        options["ssl_context"] = RenewedContext(_section(settings), lambda: _ssl_context(settings), files)
    return options


def trusted(settings: KafkaLogin) -> ssl.SSLContext:
    """Return the context for servers other than brokers, by `ssl_cafile`. Raises CertificateUnreadable."""
    return _ssl_context(msgspec.structs.replace(settings, ssl_certfile="", ssl_keyfile=""))


def _section(settings: KafkaLogin) -> str:
    """Return the section of the settings that these are."""
    return "kafka" if isinstance(settings, Kafka) else "lmcache_kafka"


def _login(settings: KafkaLogin) -> dict[str, Any]:
    if settings.sasl_mechanism == "OAUTHBEARER":
        token = RenewedText(_section(settings), "sasl_token_file", settings.sasl_token_file)
        return {"sasl_oauth_token_provider": RenewedToken(token)}
    password = settings.sasl_password
    if settings.sasl_password_file:
        file = settings.sasl_password_file
        password = RenewedPassword(RenewedText(_section(settings), "sasl_password_file", file))
    return {"sasl_plain_username": settings.sasl_username, "sasl_plain_password": password}


def _ssl_context(settings: KafkaLogin) -> ssl.SSLContext:
    files = TlsFiles(_section(settings), settings.ssl_cafile, settings.ssl_certfile, settings.ssl_keyfile)
    files.require_readable()
    context = files.trusting()
    if files.ssl_certfile:
        files.load_own(context)
    return context
