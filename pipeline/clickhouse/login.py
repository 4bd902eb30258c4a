"""Credentials for ClickHouse: the TLS files, and the password, whose file is read again when it changes.

Every request carries the login, so the next one after a change has the new password. If the file cannot be
used, this is logged and counted, and the last password stays: somebody may just be writing the file.
"""

from __future__ import annotations

import ssl
from typing import Any

import structlog

from connectors.process.limited_log import LogLimiter
from connectors.process.login_files import RENEWED, UNUSABLE, Unreadable, basic, state_of, text_of
from connectors.process.tls_files import CertificateUnreadable, TlsFiles
from schemas.settings import ClickHouse

SETTING = "password_file"

_log = structlog.get_logger(__name__)
_limiter = LogLimiter()


def password_of(store: ClickHouse) -> str:
    """Return the current password. Raises CertificateUnreadable."""
    return _read(store.password_file) if store.password_file else store.password


class RenewedHeaders(dict[str, str]):
    """Headers whose copies have the current login: clickhouse-connect copies them for each request."""

    def __init__(self, headers: dict[str, str], store: ClickHouse, password: str) -> None:
        super().__init__(headers)
        self._username, self._file = store.username, store.password_file
        self._password = password
        self._looked_at = state_of(self._file)

    def copy(self) -> dict[str, str]:
        self._renew()
        return dict(self)

    def _renew(self) -> None:
        state = state_of(self._file)
        if state == self._looked_at:
            return
        try:
            password = _read(self._file)
        except CertificateUnreadable as error:
            UNUSABLE.labels(SETTING).inc()
            if _limiter.admit("unusable", SETTING) is not None:
                _log.warning("password unusable", reason=f"{error}; requests go on with what was read before")
        else:
            if password != self._password:
                self._password = password
                self["Authorization"] = basic(self._username, password)
                RENEWED.labels(SETTING).inc()
                _log.info("password read again", setting=f"clickhouse.{SETTING}", file=self._file)
        self._looked_at = state


def _read(file: str) -> str:
    try:
        return text_of(file)
    except Unreadable as error:
        raise CertificateUnreadable("clickhouse", SETTING, file, str(error)) from error


def tls_arguments(store: ClickHouse) -> dict[str, Any]:
    """Return clickhouse-connect's arguments for TLS. Raises CertificateUnreadable.

    Files are given by name, so that each new connection reads them again.
    """
    files = TlsFiles("clickhouse", store.ssl_cafile, store.ssl_certfile, store.ssl_keyfile)
    files.require_readable()
    arguments: dict[str, Any] = {}
    if store.ssl_cafile:
        files.trusting()
        arguments["ca_cert"] = store.ssl_cafile
    if store.ssl_certfile:
        files.load_own(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        arguments["client_cert"] = store.ssl_certfile
        arguments["client_cert_key"] = store.ssl_keyfile or None
        # With a password as well, the certificate authenticates only the connection, not the user.
        arguments["tls_mode"] = "strict" if store.password or store.password_file else "mutual"
    return arguments
