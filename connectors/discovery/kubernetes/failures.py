"""Why the API server did not give pods."""

from __future__ import annotations

from connectors.process.errors import DataError
from schemas.reasons import KubernetesFailure


class ApiFailure(DataError):
    """Pods could not be listed or watched; `str()` says in one line what was wrong."""

    reason: KubernetesFailure
    text: str
    line = "{text}"
