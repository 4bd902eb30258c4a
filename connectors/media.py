"""Canonical names of the media on which engines keep blocks."""

from __future__ import annotations

from functools import lru_cache

MAX_NAME_CHARACTERS = 64
"""Longer names are cut, so that a broken engine cannot inflate records."""

_ALIASES = {
    "cpu_pinned": "cpu",  # SGLang HiCache's host tier
    "cpu_tier1": "cpu",
}


@lru_cache(maxsize=256)
def canonical_medium(raw: str | None) -> tuple[str, str | None]:
    """Return (canonical name, the engine's spelling or None).

    The spelling is None when it is absent (engines before media were announced: gpu) or simply the
    canonical name in capitals. It is kept otherwise because it tells producers apart: vLLM's own
    tiers say `CPU`, the store-only connectors `cpu`.
    """
    if not raw:
        return "gpu", None
    raw = raw[:MAX_NAME_CHARACTERS]
    folded = raw.casefold()[:MAX_NAME_CHARACTERS]
    canonical = _ALIASES.get(folded, folded)
    if canonical == "gpu":
        return "gpu", None if raw == "GPU" else raw  # the very object that is the default of the records
    return canonical, None if raw == canonical.upper() else raw
