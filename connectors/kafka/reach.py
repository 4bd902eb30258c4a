"""Log on to a broker before any client does: aiokafka's clients log why they cannot, and do not raise it."""

from __future__ import annotations

import ssl

from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    IllegalSaslStateError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from connectors.kafka.errors import KAFKA_FAILURES, BrokerUnreachable, LoginRefused, failure_reason
from connectors.kafka.mismatch import CUT_OFF, mismatch
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


async def reach(settings: KafkaLogin) -> None:
    """Return when one of the brokers has let us in.

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
            # What breaks TLS after the handshake is only in the cause.
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
