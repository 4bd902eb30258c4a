"""One partition of the events topic, as the index follows it."""

from __future__ import annotations

from functools import partial

from pipeline.index.following.sources import IndexedSource, Sources
from pipeline.index.pools.copies import IndexedCopies
from pipeline.kafka.refusal import RecordRefused
from pipeline.reading.numbered import Readable
from pipeline.residency.checkpoint.soundness import contradiction
from pipeline.residency.counting.copies import NewCopies
from pipeline.residency.partition import PartitionState
from pipeline.residency.silence import SourceKey
from pipeline.residency.source import SourceResidency
from schemas.settings import Worker


class IndexedPartition(PartitionState):
    """Applies records as the replica agent does, starting at its checkpoint, but never cuts a checkpoint.

    Records are visible in the table after `settle`.
    """

    def __init__(
        self, partition: int, settings: Worker, sources: Sources, *, partitions: int | None = None
    ) -> None:
        """`sources` are those of all partitions."""
        super().__init__(partition, settings, shards=1, partitions=partitions)
        self._all = sources
        self._indexed: dict[SourceKey, IndexedSource] = {}
        self._touched: set[SourceKey] = set()
        """Sources with events that are not in the table yet."""
        self._untidy: set[SourceKey] = set()
        """Sources with something for `let_go` to drop."""

    def _counting(self, key: SourceKey) -> NewCopies:
        source = self._indexed[key] = self._all.begin()
        return partial(
            IndexedCopies,
            holdings=self._all.holdings,
            source=source.number,
            by_content=partial(self._all.by_content, source),
        )

    def _contradiction(self, source: SourceResidency) -> str | None:
        self._all.applied(self._indexed[source.head.replica, source.head.dp_rank], source)
        return contradiction(
            source, lambda pool: None if pool.copies.blocks == sum(pool.head.blocks) else "blocks"
        )

    def _apply(self, source: SourceResidency, record: Readable, offset: int) -> None:
        super()._apply(source, record, offset)
        key = source.head.replica, source.head.dp_rank
        self._touched.add(key)
        self._all.applied(self._indexed[key], source)

    def settle(self) -> None:
        """Bring the table up to date with every record applied."""
        for key in self._touched:
            source = self.sources.get(key)
            if source is not None:
                source.pools.settle()
        self._untidy |= self._touched
        self._touched.clear()

    def _forget(self, key: SourceKey, offset: int) -> None:
        super()._forget(key, offset)
        self._all.forget(self._indexed.pop(key))

    def let_go(self) -> None:
        """Drop what would go into checkpoints and ClickHouse rows: the index writes neither."""
        self._forgotten.clear()
        self._gone.clear()
        self._left_out.clear()
        for key in self._untidy:
            source = self.sources.get(key)
            if source is not None:
                source.windows.let_go()
                source.take_changes()
        self._untidy.clear()

    def set_aside(self, offset: int, refused: RecordRefused) -> None:
        """Leave out the record at `offset`: the sources that it names, if known, lack its events."""
        super().set_aside(offset, refused)
        for key, source in self._indexed.items():
            if refused.names(*key):
                source.facts = None

    def skip_removed(self, beginning: int) -> None:
        """Continue at `beginning`: the records before it that were not applied are gone."""
        super().skip_removed(beginning)
        for source in self._indexed.values():
            source.facts = None
