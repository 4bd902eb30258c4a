"""The address of the API server and our credentials there: read again whenever they are needed."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from connectors.discovery.kubernetes.documents import ApiFailure
from connectors.process.addresses import bracketed
from schemas.discovery_settings import Kubernetes

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def server_of(entry: Kubernetes) -> str:
    """Return the address of the API server. Raises ApiFailure."""
    if entry.api_url:
        return entry.api_url
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    port = os.environ.get("KUBERNETES_SERVICE_PORT_HTTPS") or os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ApiFailure(
            "no_credentials", "this process runs in no pod; set api_url, token_file and ca_file of the entry"
        )
    return f"https://{bracketed(host)}:{port}"


def namespaces_of(entry: Kubernetes) -> tuple[str, ...]:
    """Return the namespaces to look into; "" stands for all. Raises ApiFailure."""
    if "*" in entry.namespaces:
        return ("",)
    return entry.namespaces or (_read(NAMESPACE_FILE, "set namespaces of the entry"),)


def headers_of(entry: Kubernetes) -> dict[str, str]:
    """Return the headers that log in. Raises ApiFailure."""
    if not entry.token_file:
        return {}
    token = _read(Path(entry.token_file), "set token_file of the entry")
    if not token.isascii() or not token.isprintable():
        raise ApiFailure("no_credentials", f"{entry.token_file} holds no token")
    return {"Authorization": f"Bearer {token}"}


def tls_of(entry: Kubernetes) -> ssl.SSLContext:
    """Return what checks the server's certificate. Raises ApiFailure."""
    try:
        return ssl.create_default_context(cafile=entry.ca_file or None)
    except OSError as error:  # ssl.SSLError is one
        reason = error.strerror or str(error)
        raise ApiFailure("no_credentials", f"{entry.ca_file}: {reason}; set ca_file of the entry") from error


def _read(path: Path, remedy: str) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no text"
        raise ApiFailure("no_credentials", f"{path}: {reason}; {remedy}") from error
