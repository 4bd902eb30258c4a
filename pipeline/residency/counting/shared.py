"""What the pools of a source share: the names of its adapters, room to remember first stores, a secret."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeline.reading.plain_runs import PlainRun
from schemas.reasons import GaveUpRepeats, WithoutContent

NO_LORA: Final = 0
OTHER_LORAS: Final = "(others)"
"""Stands for adapters beyond the limit, and for those whose names are too long."""
MAX_NAME_CHARACTERS: Final = 200
EARLY_STORES: Final = 256
"""First stores that a pool remembers while nothing was removed from it."""
EARLY_HASHES: Final = 16_384
"""Blocks that the first stores of all pools of a source have together."""


class Adapters:
    """Codes of adapters' names, from 1."""

    def __init__(self, names: list[str], *, most: int) -> None:
        """`names`, by code, is that of the head; `most` of them have a code of their own."""
        self.names = names
        self._most = most
        self._codes = {name: code for code, name in enumerate(names, 1)}

    def code(self, name: str) -> int:
        """Return the code of a name; one for all names that have none of their own."""
        if len(name) > MAX_NAME_CHARACTERS:
            name = OTHER_LORAS
        code = self._codes.get(name)
        if code is None:
            own = len(self._codes) - (OTHER_LORAS in self._codes)
            if own >= self._most and name != OTHER_LORAS:
                return self.code(OTHER_LORAS)
            self.names.append(name)
            code = self._codes[name] = len(self.names)
        return code

    def codes_of(self, run: PlainRun) -> npt.NDArray[np.uint16]:
        """Return the codes of a chunk's LoRAs, NO_LORA first; new names get theirs in the run's order."""
        names = run.chunk.loras
        known = [self._codes.get(name) for name in names]
        if None in known:
            of_events = run.chunk.events["adapter"][run.first_event : run.end]
            for number in dict.fromkeys(of_events.tolist()):
                if number and known[number - 1] is None:
                    known[number - 1] = self.code(names[number - 1])
        return np.array([NO_LORA, *(code or NO_LORA for code in known)], np.uint16)


class EarlyRoom:
    """Counts the blocks of remembered first stores."""

    def __init__(self, hashes: int) -> None:
        """`hashes`: how many they have so far."""
        self._hashes = hashes

    @property
    def left(self) -> int:
        """Return how many blocks may still be remembered."""
        return EARLY_HASHES - self._hashes

    def reserve(self, hashes: int) -> bool:
        """Return whether a store of this many blocks may be remembered, and count it if so."""
        if self._hashes + hashes > EARLY_HASHES:
            return False
        self._hashes += hashes
        return True

    def give_back(self, hashes: int) -> None:
        """Uncount the blocks of stores that are forgotten."""
        self._hashes -= hashes


class Shared:
    """What all pools of a source share."""

    def __init__(self, adapters: Adapters, early: EarlyRoom, spread: int, *, most_repeats: int) -> None:
        self.adapters = adapters
        self.early = early
        self.spread = spread
        """Secret factor of the block tables (`new_spread`)."""
        self.one_copy = False
        """Whether the engine knows at most one copy of each block."""
        self.decodes_singly = False
        """Whether the engine announces a block that decoding completes by itself."""
        self.without_content: Counter[WithoutContent] = Counter()
        """Blocks filled without a content hash where others have one, by reason, since this was last read."""
        self.all_known: Callable[[str], bool] = lambda medium: False
        """Returns whether all that happened on a medium is known, so that no unknown block can leave it."""
        self.unknown_removed: Callable[[str], None] = lambda medium: None
        """Called when unknown blocks left a medium, in the open window."""
        self.gave_up_repeats: Counter[GaveUpRepeats] = Counter()
        """Pools that no longer remember what was announced again."""
        self.most_repeats = most_repeats
        """Blocks announced again that a pool remembers."""
        self.copies_proved: Callable[[], None] = lambda: None
        """Called when removals prove that no store repeats others."""
