"""An index that follows a partition, without its service."""

from __future__ import annotations

from typing import Any

from pipeline.index.answers import InstanceMatch
from pipeline.index.following.partition import IndexedPartition
from pipeline.index.following.sources import Sources
from pipeline.index.index import Index
from pipeline.index.questions.question import Question
from schemas.settings import Worker


class FollowingIndex:
    """Applies records, and is asked for chains of blocks."""

    def __init__(self, settings: Worker | None = None, latest: dict[bytes, bytes] | None = None) -> None:
        self.sources = Sources()
        self.partition = IndexedPartition(0, settings or Worker(), self.sources)
        self.index = Index(self.sources)
        if latest:
            self.partition.load(latest)

    def ask(self, *chain: int, at: float = 0.0, **more: Any) -> dict[str, InstanceMatch]:
        """Return what it answers of each replica."""
        self.partition.settle()
        question = Question("m", block_hashes=[], **more)
        return self.index.answer(question, self.index.scopes_of(question), [*chain], at).instances
