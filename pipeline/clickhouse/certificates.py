"""The TLS files of ClickHouse's settings, looked at before anything is connected."""

from __future__ import annotations

import ssl
from typing import Any

from connectors.process.tls_files import TlsFiles
from schemas.settings import ClickHouse


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
        # A password beside the certificate: it is that of the login, the certificate that of the connection.
        arguments["tls_mode"] = "strict" if store.password or store.password_file else "mutual"
    return arguments
