"""Kafka settings as the arguments that aiokafka's clients take."""

from __future__ import annotations

import ssl
from typing import Any

import msgspec
from aiokafka.helpers import create_ssl_context

from connectors.kafka.errors import CertificateUnreadable
from connectors.kafka.private import complete_the_login
from connectors.kafka.renewed import (
    RenewedContext,
    RenewedPassword,
    RenewedText,
    RenewedToken,
)
from schemas.settings import KafkaLogin

complete_the_login()

_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
_NO_CERTIFICATE = "no certificate in PEM form"


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
        options["ssl_context"] = RenewedContext(lambda: _ssl_context(settings), files)
    return options


def trusted(settings: KafkaLogin) -> ssl.SSLContext:
    """Return what servers beside the brokers are checked with: `ssl_cafile`. Raises CertificateUnreadable."""
    return _ssl_context(msgspec.structs.replace(settings, ssl_certfile="", ssl_keyfile=""))


def _login(settings: KafkaLogin) -> dict[str, Any]:
    if settings.sasl_mechanism == "OAUTHBEARER":
        token = RenewedText("sasl_token_file", settings.sasl_token_file)
        return {"sasl_oauth_token_provider": RenewedToken(token)}
    password = settings.sasl_password
    if settings.sasl_password_file:
        password = RenewedPassword(RenewedText("sasl_password_file", settings.sasl_password_file))
    return {"sasl_plain_username": settings.sasl_username, "sasl_plain_password": password}


def _ssl_context(settings: KafkaLogin) -> ssl.SSLContext:
    # OpenSSL's errors name no file, so each is opened first, and loaded by itself.
    for setting in _FILES:
        _require_readable(setting, getattr(settings, setting))
    if settings.ssl_keyfile and not settings.ssl_certfile:
        reason = "it is the key of kafka.ssl_certfile, which is empty"
        raise CertificateUnreadable("ssl_keyfile", settings.ssl_keyfile, reason)
    try:
        context: ssl.SSLContext = create_ssl_context(cafile=settings.ssl_cafile or None)
    except (OSError, ssl.SSLError) as error:
        raise CertificateUnreadable("ssl_cafile", settings.ssl_cafile, _NO_CERTIFICATE) from error
    if settings.ssl_certfile:
        try:
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile or None, _no_password)
        except _KeyEncrypted as error:
            setting = "ssl_keyfile" if settings.ssl_keyfile else "ssl_certfile"
            reason = "its key is encrypted; store it without a password, readable by kvlens only"
            raise CertificateUnreadable(setting, getattr(settings, setting), reason) from error
        except (OSError, ssl.SSLError) as error:
            raise _not_a_pair(settings, error) from error
    return context


def _not_a_pair(settings: KafkaLogin, error: OSError) -> CertificateUnreadable:
    """Return which of the two files it is: OpenSSL loads them together, and says of either `PEM lib`."""
    certificate = settings.ssl_certfile
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certificate)
    except (OSError, ssl.SSLError):
        return CertificateUnreadable("ssl_certfile", certificate, _NO_CERTIFICATE)
    setting = "ssl_keyfile" if settings.ssl_keyfile else "ssl_certfile"
    another = isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH"
    reason = f"its key is not that of {certificate}" if another else "no private key in PEM form"
    if not settings.ssl_keyfile:
        reason += "; name its file in kafka.ssl_keyfile"
    return CertificateUnreadable(setting, getattr(settings, setting), reason)


class _KeyEncrypted(Exception):
    """The private key needs a password."""


def _no_password() -> str:
    """Take OpenSSL's question, which would otherwise go to the terminal and wait there for ever."""
    raise _KeyEncrypted


def _require_readable(setting: str, file: str) -> None:
    if not file:
        return
    try:
        with open(file, "rb"):
            pass
    except OSError as error:
        raise CertificateUnreadable(setting, file, error.strerror or str(error)) from error
