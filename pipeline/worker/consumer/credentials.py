"""Kafka settings as Faust takes them."""

from __future__ import annotations

from faust.auth import Credentials, OAuthCredentials, SASLCredentials, SSLCredentials

from connectors.kafka.security import client_options
from schemas.settings import Kafka


def faust_credentials(kafka: Kafka) -> Credentials | None:
    """Return what `client_options` says as `broker_credentials`; None for plain text without login.

    Raises CertificateUnreadable.
    """
    options = client_options(kafka)
    context = options.get("ssl_context")
    if "sasl_oauth_token_provider" in options:
        return OAuthCredentials(oauth_cb=options["sasl_oauth_token_provider"], ssl_context=context)
    if "sasl_mechanism" in options:
        return SASLCredentials(
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            mechanism=options["sasl_mechanism"],
            ssl_context=context,
        )
    return SSLCredentials(context) if context is not None else None
