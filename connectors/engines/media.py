"""Canonical names of the media on which engines keep blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from connectors.engines.description import Medium
from schemas.events import OWNED

MAX_NAME_CHARACTERS = 64
"""Longer names are cut, so that a broken engine cannot inflate records."""
REMOTE = "remote"
"""Stands for the owner of a medium that others reach as well: so its engine says, but not whose it is."""

Location = tuple[str, str | None, bool]
"""What a record says of a medium that an engine named: (canonical name, the engine's spelling, store-only).

The spelling is None where it is absent or simply the canonical name in capitals. It is kept otherwise because
it distinguishes producers. Store-only: whoever spells it like this announces no removals.
"""


class Media:
    """What spellings of media mean, by all engines together."""

    def __init__(self, spellings: Mapping[str, Medium], by_engine: Collection[str] = ()) -> None:
        """`by_engine`: canonical names of which only the engine decides whether they are store-only."""
        self.spellings = spellings
        self.by_engine = by_engine
        by_fold: dict[str, list[Medium]] = {}
        for spelling, medium in spellings.items():
            by_fold.setdefault(spelling.casefold(), []).append(medium)
        self._by_fold = {fold: _of_any_case(media) for fold, media in by_fold.items()}
        self.locate = lru_cache(maxsize=256)(self._locate)
        """Returns the Location of a spelling, and of an owner, if it names one: that is a medium of its own.
        Of None or an empty spelling, which came before media were announced, the GPU's."""

    def _locate(self, raw: str | None, owner: str = "") -> Location:
        if owner:
            name, _, store_only = self._locate(raw)
            kept = None if not raw else raw[:MAX_NAME_CHARACTERS]
            # Whoever manages a medium for several engines announces what leaves.
            return f"{owner}{OWNED}{name}", kept, store_only and owner == REMOTE
        if not raw:
            return "gpu", None, False
        raw = raw[:MAX_NAME_CHARACTERS]
        folded = raw.casefold()[:MAX_NAME_CHARACTERS]
        medium = self.spellings.get(raw) or self._by_fold.get(folded) or Medium(folded)
        if medium.name == "gpu":  # the very object that is the default of the records
            return "gpu", None if raw == "GPU" else raw, medium.store_only
        return medium.name, None if raw == medium.name.upper() else raw, medium.store_only


def owner_named(ownership: str | None, locality: str | None) -> str:
    """Return whose a medium is, as an event says it: its owner, REMOTE, or empty, the engine's own."""
    if ownership:
        return ownership.casefold()[:MAX_NAME_CHARACTERS]
    return REMOTE if locality is not None and locality.casefold() == REMOTE else ""


def _of_any_case(media: Iterable[Medium]) -> Medium:
    """Return what spellings that differ in case only have in common."""
    media = list(media)
    return Medium(media[0].name, all(medium.store_only for medium in media))
