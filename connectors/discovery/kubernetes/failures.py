"""Why the API server did not give pods."""

from __future__ import annotations

from schemas.reasons import KubernetesFailure


class ApiFailure(Exception):
    """Pods could not be listed or watched; `str()` says in one line what was wrong."""

    def __init__(self, reason: KubernetesFailure, text: str) -> None:
        super().__init__(text)
        self.reason = reason
