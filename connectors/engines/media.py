"""Canonical names of the media on which engines keep blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from connectors.engines.description import Medium
from schemas.events import OWNED

MAX_NAME_CHARACTERS = 64
"""Longer names are cut, so that a broken engine cannot inflate records."""
REMOTE = "remote"
"""The owner of a medium that, as its engine says, others reach as well, if it does not say who owns it."""

Location = tuple[str, str | None, bool]
"""What a record says of a medium that an engine named: (canonical name, the engine's spelling, store-only).

The spelling is None where it is absent or simply the canonical name in capitals. It is kept otherwise because
it distinguishes producers. Store-only: publishers that spell it like this announce no removals.
"""


class Media:
    """What spellings of media mean, for all engines together."""

    def __init__(self, spellings: Mapping[str, Medium]) -> None:
        self.spellings = spellings
        by_fold: dict[str, list[Medium]] = {}
        for spelling, medium in spellings.items():
            by_fold.setdefault(spelling.casefold(), []).append(medium)
        self._by_fold = {fold: _of_any_case(media) for fold, media in by_fold.items()}
        self.locate = lru_cache(maxsize=256)(self._locate)
        """Returns the Location of a spelling; with an owner it is a medium of its own. None or an empty
        spelling, from before media were announced, is the GPU."""

    def _locate(self, raw: str | None, owner: str = "") -> Location:
        if owner:
            name, _, store_only = self._locate(raw)
            kept = None if not raw else raw[:MAX_NAME_CHARACTERS]
            # An owner that manages a medium for several engines announces what it drops.
            return f"{owner}{OWNED}{name}", kept, store_only and owner == REMOTE
        if not raw:
            return "gpu", None, False
        raw = raw[:MAX_NAME_CHARACTERS]
        folded = raw.casefold()[:MAX_NAME_CHARACTERS]
        medium = self.spellings.get(raw) or self._by_fold.get(folded) or Medium(folded)
        if medium.name == "gpu":  # the very object that is the default of the records: msgspec leaves it out
            return "gpu", None if raw == "GPU" else raw, medium.store_only
        return medium.name, None if raw == medium.name.upper() else raw, medium.store_only


def owner_named(ownership: str | None, locality: str | None) -> str:
    """Return who owns a medium, as an event says: a name, REMOTE, or empty for the engine itself."""
    if ownership:
        return ownership.casefold()[:MAX_NAME_CHARACTERS]
    return REMOTE if locality is not None and locality.casefold() == REMOTE else ""


def _of_any_case(media: Iterable[Medium]) -> Medium:
    """Return what spellings that differ in case only have in common."""
    media = list(media)
    return Medium(media[0].name, all(medium.store_only for medium in media))
