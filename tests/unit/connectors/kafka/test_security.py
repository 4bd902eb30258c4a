"""Settings as aiokafka's arguments, and TLS files that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from connectors.kafka.security import client_options
from connectors.process.tls_files import CertificateUnreadable
from schemas.settings import Kafka


@pytest.mark.parametrize("setting", ["ssl_cafile", "ssl_certfile", "ssl_keyfile"])
@pytest.mark.parametrize("kind", ["missing", "directory"])
def test_a_file_that_cannot_be_read_is_named_with_its_setting(
    tmp_path: Path, setting: str, kind: str
) -> None:
    file = tmp_path / "file.pem"
    if kind == "directory":
        file.mkdir()
    given: dict[str, Any] = {setting: str(file)}
    with pytest.raises(CertificateUnreadable) as raised:
        client_options(Kafka(security_protocol="SASL_SSL", **given))
    reason = "Is a directory" if kind == "directory" else "No such file or directory"
    assert str(raised.value) == f"cannot use {file} of kafka.{setting}: {reason}"


@pytest.mark.parametrize("setting", ["ssl_cafile", "ssl_certfile"])
def test_a_file_of_something_else_is_named_with_its_setting(tmp_path: Path, setting: str) -> None:
    file = tmp_path / "file.pem"
    file.write_text("no certificate")
    given: dict[str, Any] = {setting: str(file)}
    with pytest.raises(CertificateUnreadable) as raised:
        client_options(Kafka(security_protocol="SSL", **given))
    assert (raised.value.setting, raised.value.file) == (setting, str(file))
    assert raised.value.reason == "no certificate in PEM form"


CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBbjCCARWgAwIBAgIUeTXBijR1lIy3DxUU/oW8mH0prKswCgYIKoZIzj0EAwIw
DDEKMAgGA1UEAwwBdDAgFw0yNjExMjIwNzA1MTZaGA8yMTI2MTAyOTA3MDUxNlow
DDEKMAgGA1UEAwwBdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABHM/LC/x8MaZ
uNllAS31K83/DSYz92+UhNoVR8nE6WoRZn2UecjNTPKp6CWLLlWltNyjfmrgjpNw
2Z0LQFdeU5CjUzBRMB0GA1UdDgQWBBQrIkeWBDkDvjy/+cEF5KTG1wr+nDAfBgNV
HSMEGDAWgBQrIkeWBDkDvjy/+cEF5KTG1wr+nDAPBgNVHRMBAf8EBTADAQH/MAoG
CCqGSM49BAMCA0cAMEQCIH0LOELNPXm3ryGWpTk6BcsK/EpFl7iqVR7gxBgCxiTe
AiAaMxpR/nPJcjhH06EZ8SPTMhahnsmqwlnBVWYTiKxKZg==
-----END CERTIFICATE-----
"""
ENCRYPTED_KEY = """\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHrMFYGCSqGSIb3DQEFDTBJMCgGCSqGSIb3DQEFDDAbBAjuTm+q8Rl0TgIBATAM
BggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBKgQQfa+hSOyTGf09oI1N8vyOegSBkJS6
MtjazXvEVYiBSuyS2SL8niKFI8um9MrsS/DIafiVxcKGFYxQWkRrdqOhAis/TeBb
dMV/RBqJpdzC20syRjS6F4JNcv3VEC31MbzdLUqx3xLzlc8G7A+qC9VwqV3ILNXQ
f4BCTMfonf5nmEkRFNjhhWuriFMh+XfBO+QwZit5ziLpQ8snIL1By/2WIJuf/Q==
-----END ENCRYPTED PRIVATE KEY-----
"""
"""Of the certificate, made for this test."""


@pytest.mark.parametrize("own_file", [True, False])
def test_a_key_with_a_password_is_refused_and_nobody_is_asked(tmp_path: Path, own_file: bool) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_text(CERTIFICATE if own_file else CERTIFICATE + ENCRYPTED_KEY)
    key.write_text(ENCRYPTED_KEY)
    given = {"ssl_certfile": str(certificate)} | ({"ssl_keyfile": str(key)} if own_file else {})
    # OpenSSL would ask on the terminal; without one it fails at once, with words of its own.
    with pytest.raises(CertificateUnreadable) as raised:
        client_options(Kafka(security_protocol="SSL", **given))  # type: ignore[arg-type]
    assert raised.value.setting == ("ssl_keyfile" if own_file else "ssl_certfile")
    assert "its key is encrypted; store it without a password" in str(raised.value)


ANOTHER_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgr85PSVpbV+SDZj6i
fBg8gAgE5hqpHYs1TVefzy3vb7+hRANCAARkBrmLSeEZBGbhwJYJrjkgNkHiMEu/
X//9ZqnQaRMQvTYqQrUmqn0VsHzyplqurbiAyAF3qR/0klBJjo3Yl20v
-----END PRIVATE KEY-----
"""
"""Of no certificate, made for this test."""


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("no key", "no private key in PEM form"),
        (CERTIFICATE, "no private key in PEM form"),
        (ANOTHER_KEY, "its key is not that of {directory}/certificate.pem"),
    ],
)
def test_a_key_that_is_none_or_another_is_named_itself(tmp_path: Path, key: str, reason: str) -> None:
    certificate, file = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_text(CERTIFICATE)
    file.write_text(key)
    with pytest.raises(CertificateUnreadable) as raised:
        client_options(Kafka(security_protocol="SSL", ssl_certfile=str(certificate), ssl_keyfile=str(file)))
    line = f"cannot use {file} of kafka.ssl_keyfile: {reason.format(directory=tmp_path)}"
    assert str(raised.value) == line


def test_a_certificate_without_a_key_beside_it_is_told_where_to_name_one(tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    certificate.write_text(CERTIFICATE)
    with pytest.raises(CertificateUnreadable, match=r"no private key .* name its file in kafka\.ssl_keyfile"):
        client_options(Kafka(security_protocol="SSL", ssl_certfile=str(certificate)))


def test_a_key_without_its_certificate_is_not_left_out_in_silence(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text(ANOTHER_KEY)
    with pytest.raises(
        CertificateUnreadable, match=r"key\.pem of kafka\.ssl_keyfile: it is the key of kafka"
    ):
        client_options(Kafka(security_protocol="SSL", ssl_keyfile=str(key)))


def test_files_are_not_read_where_nothing_is_encrypted(tmp_path: Path) -> None:
    options = client_options(Kafka(ssl_cafile=str(tmp_path / "missing.pem")))
    assert "ssl_context" not in options
