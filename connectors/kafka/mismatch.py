"""What the end of a handshake says about the settings, such as TLS or a login that the port has not."""

from __future__ import annotations

import ssl

from aiokafka.errors import IllegalSaslStateError, KafkaConnectionError, UnsupportedSaslMechanismError

from schemas.settings import KafkaLogin

CUT_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""What a TLS handshake ends with when the broker goes away meanwhile, or does not speak TLS."""


_WANTS_CERTIFICATE = ("CERTIFICATE_REQUIRED", "ALERT_BAD_CERTIFICATE", "ALERT_HANDSHAKE_FAILURE")
"""Ends of the names of alerts that a client without a certificate gets, by version of TLS."""


def mismatch(settings: KafkaLogin, error: BaseException) -> str | None:
    """Return which setting may not fit the port when connecting failed so; None when none is known."""
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
