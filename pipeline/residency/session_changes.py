"""Changes of residency by the engine session in which they happened, until a cut takes them."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.residency.changes import Changes
from pipeline.residency.pools import Pools
from pipeline.residency.rows import media
from pipeline.residency.stream import receiving, trust
from schemas.checkpoints import SourceHead, TrustSince
from schemas.trust import Trust


class SessionChanges(NamedTuple):
    """Changes of residency that belong to one incarnation."""

    incarnation: int
    model: str
    hash_domain: str
    trust: Trust
    changes: list[Changes]
    receives: bool
    undecided: bool = False
    """Whether `receives` is not known yet."""
    decides: bool = False
    """Whether `receives` holds for all undecided changes before, too."""


class PendingChanges:
    """The changes of one source that were not taken yet."""

    def __init__(self, head: SourceHead, pools: Pools) -> None:
        self._head = head
        self._pools = pools
        self._kept: list[SessionChanges] = []

    def collect(self) -> None:
        """Assign what changed so far to the present session and trust."""
        head = self._head
        changes = self._pools.take_changes()
        if changes:
            undecided = receiving.is_undecided(head)
            head.undecided |= undecided
            self._keep(changes, undecided=undecided)

    def decide(self) -> None:
        """Let what is known now of whether the source receives KV decide the undecided changes so far."""
        self.collect()
        if self._head.undecided:
            self._head.undecided = False
            self._keep([], decides=True)

    def take(self) -> list[SessionChanges]:
        """Return all since the last call, oldest session first."""
        self.collect()
        taken, self._kept = self._kept, []
        return taken

    def _keep(self, changes: list[Changes], *, undecided: bool = False, decides: bool = False) -> None:
        head = self._head
        overall, receives = overall_trust(head, self._pools).trust, receiving.receives(head)
        self._kept.append(
            SessionChanges(
                head.incarnation, head.model, head.hash_domain, overall, changes, receives, undecided, decides
            )
        )


def overall_trust(head: SourceHead, pools: Pools) -> TrustSince:
    """Return the trust of a source as a whole: that of its worst medium."""
    pools.settle()
    return trust.worst(head.trust, media(head))
