"""Why a broker and a client do not come together, in words that name the settings."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from connectors.kafka.errors import failure_reason
from connectors.kafka.reach import mismatch
from schemas.settings import Kafka

PLAIN, TLS = Kafka(), Kafka(security_protocol="SSL")
LOGIN = Kafka(security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256")
OWN = Kafka(security_protocol="SSL", ssl_certfile="/etc/own.pem")
CLOSED = KafkaConnectionError("Connection at a:9 closed")


def of_tls(kind: type[ssl.SSLError], reason: str) -> ssl.SSLError:
    error = kind(1, f"[SSL: {reason}] words")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        (LOGIN, IllegalSaslStateError(), "takes no login, and kafka.security_protocol is SASL_PLAINTEXT"),
        (LOGIN, UnsupportedSaslMechanismError(), "does not know kafka.sasl_mechanism SCRAM-SHA-256"),
        (LOGIN, CLOSED, "as a port with TLS does; kafka.security_protocol is SASL_PLAINTEXT"),
        (PLAIN, CLOSED, "as a port with TLS does; kafka.security_protocol is PLAINTEXT"),
        (TLS, ConnectionResetError(), "as a port without TLS does; kafka.security_protocol is SSL"),
        (TLS, of_tls(ssl.SSLEOFError, "EOF"), "as a port without TLS does; kafka.security_protocol is SSL"),
        (
            TLS,
            of_tls(ssl.SSLError, "WRONG_VERSION_NUMBER"),
            "speaks no TLS, and kafka.security_protocol is SSL",
        ),
        (TLS, of_tls(ssl.SSLError, "TLSV13_ALERT_CERTIFICATE_REQUIRED"), "kafka.ssl_certfile is empty"),
        (TLS, of_tls(ssl.SSLError, "SSLV3_ALERT_HANDSHAKE_FAILURE"), "kafka.ssl_certfile is empty"),
        (OWN, of_tls(ssl.SSLError, "SSLV3_ALERT_HANDSHAKE_FAILURE"), None),
        (PLAIN, ConnectionResetError(), None),
        (PLAIN, ConnectionRefusedError(), None),
        (TLS, ConnectionRefusedError(), None),
        (TLS, TimeoutError(), None),
    ],
)
def test_what_does_not_fit_names_the_setting(settings: Kafka, error: Exception, words: str | None) -> None:
    told = mismatch(settings, error)
    assert told is None if words is None else told is not None and words in told


@pytest.mark.parametrize(
    ("cafile", "trusted"), [("", "kafka.ssl_cafile is empty"), ("/etc/ca.pem", "trusted: /etc/ca.pem")]
)
def test_a_certificate_that_is_not_valid_says_what_is_trusted(cafile: str, trusted: str) -> None:
    error = ssl.SSLCertVerificationError(1, "self-signed")
    error.verify_message = "self-signed certificate"
    told = mismatch(Kafka(security_protocol="SSL", ssl_cafile=cafile), error)
    assert told is not None
    assert told.startswith("its certificate is not valid: self-signed certificate; ")
    assert trusted in told


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (
            KafkaConnectionError("Unable to bootstrap from [('127.0.0.1', 1, <AddressFamily.AF_INET: 2>)]"),
            "it closes the connection, as a port does that wants another kafka.security_protocol",
        ),
        (SaslAuthenticationFailed("wrong word"), "SaslAuthenticationFailed: wrong word"),
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "connection refused"),
        (TimeoutError(), "no answer in time"),
        (asyncio.TimeoutError(), "no answer in time"),
    ],
)
def test_reasons_are_words_and_no_objects(error: Exception, reason: str) -> None:
    assert failure_reason(error) == reason
