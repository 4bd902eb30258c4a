"""Settings as aiokafka's arguments, and TLS files that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from connectors.kafka.security import CertificateUnreadable, client_options
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
    assert "\n" not in str(raised.value)


def test_files_are_not_read_where_nothing_is_encrypted(tmp_path: Path) -> None:
    options = client_options(Kafka(ssl_cafile=str(tmp_path / "missing.pem")))
    assert "ssl_context" not in options
