"""What is forwarded about requests beyond their blocks: nothing, unless the settings ask for it."""

from __future__ import annotations

from typing import NamedTuple

from connectors.normalise.links import Linker
from connectors.normalise.pseudonyms import Pseudonyms, key_in
from schemas.settings import Connector


class Forwarding(NamedTuple):
    """What makes names and links; None: these are left out. Session ids and salts share one key."""

    sessions: Pseudonyms | None = None
    """Names session ids."""
    linker: Linker | None = None
    """Makes links of blocks."""
    salts: Pseudonyms | None = None
    """Names salts."""

    @classmethod
    def of(cls, settings: Connector) -> Forwarding:
        """Return what the settings ask for. Raises KeyUnusable."""
        names = linker = None
        if settings.forward_session_ids or settings.forward_salts:
            names = Pseudonyms.of_file(settings.session_key_file, "connector.session_key_file")
        if settings.content_hashes:
            key_file = settings.content_key_file
            linker = Linker(key_in("connector.content_key_file", key_file) if key_file else b"")
        return cls(
            names if settings.forward_session_ids else None,
            linker,
            names if settings.forward_salts else None,
        )


NOTHING_FORWARDED = Forwarding()
