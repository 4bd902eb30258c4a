"""The TLS files of ClickHouse's settings, looked at before anything is connected: OpenSSL names no file."""

from __future__ import annotations

import ssl
from typing import Any

from pipeline.errors import CertificateUnusable
from schemas.settings import ClickHouse

_NO_CERTIFICATE = "no certificate in PEM form"


def tls_arguments(store: ClickHouse) -> dict[str, Any]:
    """Return clickhouse-connect's arguments for TLS. Raises CertificateUnusable.

    Files are given by name, so that each new connection reads them again.
    """
    files = {name: getattr(store, name) for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile")}
    for setting, file in files.items():
        _require_readable(setting, file)
    if store.ssl_cafile:
        _require_certificate("ssl_cafile", store.ssl_cafile)
    if store.ssl_keyfile and not store.ssl_certfile:
        reason = "it is the key of clickhouse.ssl_certfile, which is empty"
        raise CertificateUnusable("ssl_keyfile", store.ssl_keyfile, reason)
    arguments: dict[str, Any] = {}
    if store.ssl_cafile:
        arguments["ca_cert"] = store.ssl_cafile
    if store.ssl_certfile:
        _require_certificate("ssl_certfile", store.ssl_certfile)
        _require_key(store)
        arguments["client_cert"] = store.ssl_certfile
        arguments["client_cert_key"] = store.ssl_keyfile or None
        # A password beside the certificate: it is that of the login, the certificate that of the connection.
        arguments["tls_mode"] = "strict" if store.password or store.password_file else "mutual"
    return arguments


def _require_readable(setting: str, file: str) -> None:
    if not file:
        return
    try:
        with open(file, "rb"):
            pass
    except OSError as error:
        raise CertificateUnusable(setting, file, error.strerror or str(error)) from error


def _require_certificate(setting: str, file: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except (OSError, ssl.SSLError) as error:
        raise CertificateUnusable(setting, file, _NO_CERTIFICATE) from error


def _require_key(store: ClickHouse) -> None:
    setting = "ssl_keyfile" if store.ssl_keyfile else "ssl_certfile"
    file = store.ssl_keyfile or store.ssl_certfile
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_cert_chain(store.ssl_certfile, store.ssl_keyfile or None, _no_password)
    except _KeyEncrypted as error:
        reason = "its key is encrypted; store it without a password, readable by kvlens only"
        raise CertificateUnusable(setting, file, reason) from error
    except (OSError, ssl.SSLError) as error:
        another = isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH"
        reason = f"its key is not that of {store.ssl_certfile}" if another else "no private key in PEM form"
        if not store.ssl_keyfile:
            reason += "; name its file in clickhouse.ssl_keyfile"
        raise CertificateUnusable(setting, file, reason) from error


class _KeyEncrypted(Exception):
    """The private key needs a password."""


def _no_password() -> str:
    """Take OpenSSL's question, which would otherwise go to the terminal and wait there for ever."""
    raise _KeyEncrypted
