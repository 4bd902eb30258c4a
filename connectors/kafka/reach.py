"""Logs on to a broker before any client does: aiokafka's clients log why they cannot, and raise nothing."""

from __future__ import annotations

import ssl

from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    IllegalSaslStateError,
    KafkaConnectionError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from connectors.kafka.errors import KAFKA_FAILURES, BrokerUnreachable, LoginRefused, failure_reason
from connectors.kafka.private import addresses, log_on
from connectors.kafka.security import client_options
from schemas.settings import KafkaLogin

ANSWER_SECONDS = 5.0
"""How long one broker may take to answer."""
_REFUSALS = (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    IllegalSaslStateError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
    ssl.SSLError,
)
CUT_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""How a TLS handshake ends if the broker goes away meanwhile, or does not speak TLS."""
_WANTS_CERTIFICATE = ("CERTIFICATE_REQUIRED", "ALERT_BAD_CERTIFICATE", "ALERT_HANDSHAKE_FAILURE")
"""How names of the alerts end that a client without a certificate gets, depending on the TLS version."""


def mismatch(settings: KafkaLogin, error: BaseException) -> str | None:
    """Return which setting may not fit the port, judging by the error; None if it points to none."""
    given = f"kafka.security_protocol is {settings.security_protocol}"
    if isinstance(error, IllegalSaslStateError):
        return f"this port takes no login, and {given}"
    if isinstance(error, UnsupportedSaslMechanismError):
        return f"this port does not know kafka.sasl_mechanism {settings.sasl_mechanism}"
    if isinstance(error, ssl.SSLCertVerificationError):
        trusted = settings.ssl_cafile or "the system's authorities, as kafka.ssl_cafile is empty"
        return f"its certificate is not valid: {error.verify_message}; trusted: {trusted}"
    if settings.security_protocol.endswith("SSL"):
        if isinstance(error, (ConnectionResetError, *CUT_OFF)):
            return f"it ends the TLS handshake, as a port without TLS does; {given}"
        if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
            return f"this port speaks no TLS, and {given}"
        alert = isinstance(error, ssl.SSLError) and (error.reason or "").endswith(_WANTS_CERTIFICATE)
        if alert and not settings.ssl_certfile:
            return "it wants a certificate of the client, and kafka.ssl_certfile is empty"
    elif isinstance(error, KafkaConnectionError) and "closed" in str(error):
        return f"it closes the connection, as a port with TLS does; {given}"
    return None


async def reach(settings: KafkaLogin) -> None:
    """Log on to one of the brokers, whichever is the first to answer.

    Raises BrokerUnreachable when none answers, LoginRefused, CertificateUnreadable.
    """
    options = client_options(settings)
    servers = options.pop("bootstrap_servers")
    reason = "no address given"
    for host, port in addresses(servers):
        try:
            await log_on(host, port, ANSWER_SECONDS, options)
        except KAFKA_FAILURES as error:
            cause = error.__cause__ or error
            # An error of TLS after the handshake is only in the cause.
            told = cause if isinstance(cause, ssl.SSLError) else error
            reason = mismatch(settings, cause) or mismatch(settings, error) or failure_reason(told)
            if isinstance(cause, _REFUSALS) and not isinstance(cause, CUT_OFF):
                renewed = _renewed(settings, tls=isinstance(cause, ssl.SSLError))
                raise LoginRefused(f"{host}:{port}", reason, heals=renewed) from error
        else:
            return
    raise BrokerUnreachable(servers, reason)


def _renewed(settings: KafkaLogin, *, tls: bool) -> bool:
    """Return whether what was refused comes from files, which may change."""
    if tls:
        return bool(settings.ssl_cafile or settings.ssl_certfile)
    return bool(settings.sasl_password_file or settings.sasl_token_file)
