"""Passwords, tokens and certificates that change in their files, as new connections find them."""

from __future__ import annotations

import logging
import os
import ssl
import stat
import time
from pathlib import Path

import pytest

from connectors.kafka import renewed as renewing
from connectors.kafka.renewed import RenewedContext, RenewedPassword, RenewedText, RenewedToken
from connectors.kafka.security import client_options
from connectors.process.limited_log import LogLimiter
from connectors.process.login_files import RENEWED, UNUSABLE
from connectors.process.tls_files import CertificateUnreadable
from schemas.settings import Kafka, KafkaLogin

FIRST = """\
-----BEGIN CERTIFICATE-----
MIIBdjCCAR2gAwIBAgIUHKjfqK0nsBGwj5EuSg3P41in1lEwCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFZmlyc3QwIBcNMjYxMTIzMDYzNDIxWhgPMjEyNjEwMzAwNjM0
MjFaMBAxDjAMBgNVBAMMBWZpcnN0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
ijScK0jrpDYDqjUqlVLTwdSlZw1k38RclJfwsU/Q3driintykllhv9s6oZykpJ7o
k/e7ZpyO/bCvA/w6c6V8zqNTMFEwHQYDVR0OBBYEFMVjaYcxDzbboWK4ty19AhIW
zN8uMB8GA1UdIwQYMBaAFMVjaYcxDzbboWK4ty19AhIWzN8uMA8GA1UdEwEB/wQF
MAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIgG3obRWAAKju2VzzgH7liw7xRrnvasy7g
87sRfqorlAoCIBpI2KNS1ul6qTl57G5rmc5CYnKTYJX3AeJN2EUELZMK
-----END CERTIFICATE-----
"""
FIRST_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgXq1u7H7W8a3DSt8Q
ANGJ5KUJtds+gt8Jttkz68RD2fOhRANCAASKNJwrSOukNgOqNSqVUtPB1KVnDWTf
xFyUl/CxT9Dd2uKKe3KSWWG/2zqhnKSknuiT97tmnI79sK8D/DpzpXzO
-----END PRIVATE KEY-----
"""
SECOND = """\
-----BEGIN CERTIFICATE-----
MIIBeDCCAR+gAwIBAgIUaIIKAUZn6enutKVB1rixOHRpv2gwCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGc2Vjb25kMCAXDTI2MTEyMzA2MzQyMVoYDzIxMjYxMDMwMDYz
NDIxWjARMQ8wDQYDVQQDDAZzZWNvbmQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAS1tKpW+W4nRfL+7qMYUx/onz0urFCXDn900nKP//2zl9feDH6KsIfAvKEDdpqj
DiVfS8eBrhtK4akOi9Ba2cLMo1MwUTAdBgNVHQ4EFgQUpkoynnITv02qqSeHFl1s
A3FomvwwHwYDVR0jBBgwFoAUpkoynnITv02qqSeHFl1sA3FomvwwDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiB1VlUApmZkbgsOK6RE/nS0e261DEZd
LrprlKVMUwZyGQIgCIam1boQ4RJFAPIv3Q1Ud8o9PuXdrr3xetixL4ZQ6Sg=
-----END CERTIFICATE-----
"""
SECOND_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgXOdRCTlHPYWdzK3E
4HXWLmGZu51sZbpwWnidZcjeT5yhRANCAAS1tKpW+W4nRfL+7qMYUx/onz0urFCX
Dn900nKP//2zl9feDH6KsIfAvKEDdpqjDiVfS8eBrhtK4akOi9Ba2cLM
-----END PRIVATE KEY-----
"""
"""Two certificates that are their own authorities, made for this test."""


def counted(setting: str) -> tuple[float, float]:
    """Times that a setting was renewed, and that it was unusable."""
    return RENEWED.labels(setting)._value.get(), UNUSABLE.labels(setting)._value.get()


def test_a_password_is_that_of_its_file_whenever_it_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\n")
    options = client_options(
        Kafka(
            security_protocol="SASL_PLAINTEXT",
            sasl_password="read at the start",
            sasl_password_file=str(file),
        )
    )
    password = options["sasl_plain_password"]
    assert isinstance(password, RenewedPassword)
    assert password == "first"
    renewed, unusable = counted("sasl_password_file")
    file.write_text("second\n")
    assert password.source.now() == "second"
    assert password.source.now() == "second"
    assert counted("sasl_password_file") == (renewed + 1, unusable)


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"])
def test_a_file_that_says_nothing_for_a_while_leaves_the_last_password(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "password"
    file.write_text("first")
    text = RenewedText("kafka", "sasl_password_file", str(file))
    renewed, unusable = counted("sasl_password_file")
    file.unlink() if content is None else file.write_bytes(content)
    assert text.now() == "first"
    assert counted("sasl_password_file") == (renewed, unusable + 1)
    file.write_text("second")
    assert text.now() == "second"


def test_each_login_is_named_by_its_section(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "kvlens.kafka")
    monkeypatch.setattr(renewing, "_limiter", LogLimiter())
    for login in (Kafka, KafkaLogin):
        file = tmp_path / login.__name__
        file.write_text("first")
        options = client_options(login(security_protocol="SASL_PLAINTEXT", sasl_password_file=str(file)))
        file.write_text("second")
        assert options["sasl_plain_password"].source.now() == "second"
    assert [line.split(" was ")[0] for line in caplog.messages] == [
        "kafka.sasl_password_file", "lmcache_kafka.sasl_password_file",
    ]  # fmt: skip
    with pytest.raises(CertificateUnreadable, match=r"of lmcache_kafka\.ssl_cafile: "):
        client_options(KafkaLogin(security_protocol="SSL", ssl_cafile=str(tmp_path / "none")))


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file or directory"), (b"\n", "it is empty"), (b"\xff", "not UTF-8 text")],
)
def test_a_file_without_a_password_at_the_start_is_named(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CertificateUnreadable) as raised:
        client_options(Kafka(security_protocol="SASL_SSL", sasl_password_file=str(file)))
    assert str(raised.value) == f"cannot use {file} of kafka.sasl_password_file: {reason}"


async def test_a_token_is_that_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a.b.c\n")
    options = client_options(
        Kafka(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_token_file=str(file))
    )
    token = options["sasl_oauth_token_provider"]
    assert isinstance(token, RenewedToken)
    assert "sasl_plain_password" not in options
    assert await token.token() == "a.b.c"
    file.write_text("d.e.f\n")
    assert await token.token() == "d.e.f"


def of_connection(context: ssl.SSLContext) -> ssl.SSLContext:
    """The context of a connection that is made now."""
    return context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="kafka").context


def trusts(context: ssl.SSLContext, certificate: str) -> bool:
    """Whether it trusts this one and no other."""
    return context.get_ca_certs(binary_form=True) == [ssl.PEM_cert_to_DER_cert(certificate)]


def test_new_connections_trust_the_authorities_of_now_and_no_others(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(FIRST)
    context = client_options(Kafka(security_protocol="SSL", ssl_cafile=str(file)))["ssl_context"]
    before = of_connection(context)
    assert trusts(before, FIRST)
    assert of_connection(context) is before
    file.write_text(SECOND)
    after = of_connection(context)
    assert trusts(after, SECOND)
    assert after.check_hostname
    assert after.verify_mode is ssl.CERT_REQUIRED
    assert trusts(before, FIRST)


def test_a_certificate_and_its_key_change_together(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_text(FIRST)
    key.write_text(FIRST_KEY)
    settings = Kafka(security_protocol="SSL", ssl_certfile=str(certificate), ssl_keyfile=str(key))
    context = client_options(settings)["ssl_context"]
    before = of_connection(context)
    _, unusable = counted("ssl_keyfile")
    # Whoever looks between the two finds a key of another certificate.
    certificate.write_text(SECOND)
    with caplog.at_level(logging.INFO, "kvlens.kafka"):
        assert of_connection(context) is before
        assert of_connection(context) is before
        assert counted("ssl_keyfile")[1] == unusable + 1
        key.write_text(SECOND_KEY)
        after = of_connection(context)
    assert after is not before
    assert of_connection(context) is after
    assert f"cannot use {key} of kafka.ssl_keyfile: its key is not that of {certificate}" in caplog.text
    assert f"kafka.ssl_keyfile was read again from {key}" in caplog.text


def test_files_are_followed_as_kubernetes_changes_them(tmp_path: Path) -> None:
    """A mounted Secret is a link to a link, of which the first one stays."""
    for name, content in (("..1", FIRST), ("..2", SECOND)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ca.crt").write_text(content)
    (tmp_path / "..data").symlink_to("..1")
    file = tmp_path / "ca.crt"
    file.symlink_to("..data/ca.crt")
    context = client_options(Kafka(security_protocol="SSL", ssl_cafile=str(file)))["ssl_context"]
    assert trusts(of_connection(context), FIRST)
    (tmp_path / "..next").symlink_to("..2")
    os.replace(tmp_path / "..next", tmp_path / "..data")
    assert trusts(of_connection(context), SECOND)


def test_a_file_that_becomes_readable_is_read(tmp_path: Path) -> None:
    """Who put it there forgot its mode. A superuser reads any, so the mode itself is looked at."""
    file = tmp_path / "ca.pem"
    file.write_text(FIRST)

    def made() -> ssl.SSLContext:
        if not file.stat().st_mode & stat.S_IRGRP:
            raise CertificateUnreadable("kafka", "ssl_cafile", str(file), "Permission denied")
        return ssl.create_default_context(cadata=file.read_text())

    context = RenewedContext("kafka", made, {"ssl_cafile": str(file)})
    file.write_text(SECOND)
    file.chmod(0o600)
    assert trusts(of_connection(context), FIRST)
    time.sleep(0.05)  # longer than a tick of the file system's clock
    file.chmod(0o640)
    assert trusts(of_connection(context), SECOND)
