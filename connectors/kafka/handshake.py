"""aiokafka's login with what it lacks: the password of now, and tokens that a broker refuses."""

from __future__ import annotations

from aiokafka.conn import AIOKafkaConnection, OAuthAuthenticator
from aiokafka.errors import SaslAuthenticationFailed

from connectors.kafka.renewed import RenewedPassword

_handshake = AIOKafkaConnection._do_sasl_handshake


async def _with_the_password_of_now(connection: AIOKafkaConnection) -> None:
    """Upstream hands the string that its client was made with to each connection."""
    if isinstance(connection._sasl_plain_password, RenewedPassword):
        connection._sasl_plain_password = connection._sasl_plain_password.source.now()
    await _handshake(connection)


class _Authenticator(OAuthAuthenticator):  # type: ignore[misc]
    """Upstream takes a refusal, which comes as an answer with a reason, for success."""

    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        if self._token_sent and payload:
            raise SaslAuthenticationFailed(f"the token is refused: {payload.decode(errors='replace')}")
        step: tuple[bytes, bool] | None = await super().step(payload)
        return step


def _authenticator(connection: AIOKafkaConnection) -> _Authenticator:
    return _Authenticator(sasl_oauth_token_provider=connection._sasl_oauth_token_provider)


def complete_the_login() -> None:
    """Have every connection of this process log on so."""
    AIOKafkaConnection._do_sasl_handshake = _with_the_password_of_now
    AIOKafkaConnection.authenticator_oauth = _authenticator
