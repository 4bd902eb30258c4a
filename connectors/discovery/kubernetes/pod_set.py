"""The pods of a namespace, according to lists and watch events. No IO."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from connectors.discovery.kubernetes.documents import Pod, PodDocument, pod_of


class PodSet:
    """Pods that match a selector, by namespace and name.

    A pod is there from its first mention until it is deleted, ends (Failed, Succeeded) or no longer
    matches. Nothing else removes it, least of all not being ready. Another UID under a name is another pod.
    """

    def __init__(self) -> None:
        self._pods: dict[tuple[str, str], Pod] = {}

    @property
    def pods(self) -> list[Pod]:
        return list(self._pods.values())

    def listed(self, documents: Iterable[PodDocument], *, whole: bool = True) -> None:
        """Apply a list: what is not in it has gone, if it is `whole`."""
        known, self._pods = self._pods, {} if whole else {**self._pods}
        for document in documents:
            self._put(document, known)

    def changed(self, kind: str, document: PodDocument) -> None:
        """Apply an event: ADDED, MODIFIED, or DELETED, which also comes when labels no longer match."""
        if kind != "DELETED":
            self._put(document, self._pods)
            return
        key = document.key
        known = self._pods.get(key)
        if known is not None and known.uid == document.metadata.uid:
            del self._pods[key]

    def _put(self, document: PodDocument, known: dict[tuple[str, str], Pod]) -> None:
        pod = pod_of(document)
        key = document.key
        before = known.get(key)
        same_pod = before is not None and before.uid == document.metadata.uid
        if pod is None:
            if same_pod:
                self._pods.pop(key, None)
            return
        if before is not None and same_pod and not pod.addresses:
            # Its node does not report; the engine may well still run.
            pod = replace(pod, addresses=before.addresses)
        # An equal pod stays the same object: what was computed from it need not be computed again.
        self._pods[key] = before if before == pod and before is not None else pod
