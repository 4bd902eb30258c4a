"""The interface of what a pool counts its copies in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from pipeline.reading.columns import Events, Hashes
from pipeline.residency.changes import ChangeRows
from pipeline.residency.counting.block_entries import BlockColumns, Entries
from pipeline.residency.counting.count_copies import Rules, Tally
from pipeline.residency.counting.shared import Shared
from schemas.pool_checkpoints import PoolHead

Sizes: TypeAlias = npt.NDArray[np.int64]
"""Tokens per block of each size code."""
Several = Callable[[Events, Tally], None]
"""Applies the operation that a tally has come to, which is on a block whose copies differ in size."""


class Copies(Protocol):
    """The copies of one pool's blocks."""

    @property
    def keeps_contents(self) -> bool:
        """Whether content hashes of blocks are known here."""

    @property
    def blocks(self) -> int:
        """How many are resident."""

    def count(self, events: Events, sizes: Sizes, rules: Rules, tally: Tally, several: Several) -> ChangeRows:
        """Apply events, as `count_copies` does it, to the end or until LEFT_UNKNOWN.

        Return what became resident and what ceased to be.
        """

    def add(self, block: int, copies: int, *, several_sizes: bool) -> None:
        """Add copies, or take them away if fewer than 0, of a block that is resident and stays so."""

    def live(self) -> Entries:
        """Return a copy of the entries of all resident blocks, in no order of meaning."""

    def contents_of(self, hashes: Hashes) -> Hashes:
        """Return the content hash of each block, 0 where it is not known or the block is not resident."""

    def make_room(self, blocks: int) -> None:
        """Make room for blocks of a checkpoint that are about to be `put`."""

    def put(self, columns: BlockColumns) -> None:
        """Set entries as a checkpoint has them; zero copies removes one."""

    def clear(self) -> tuple[Entries, Hashes]:
        """Drop all blocks; return those that need a change, and their content hashes."""

    def give_up(self) -> None:
        """Free what they take: nobody asks for them any more."""


NewCopies = Callable[[PoolHead, Shared], Copies]
"""Makes what counts the copies of one medium and group, whose head is kept up to date."""
