# Copied from schemas/choices.py by `python -m pipeline.generated`.
"""Records of `kvlens.choices.v1`: where routers sent requests, beside what an index knew of it then.

A router posts its choices to an index (`POST /choices`), which compares each with the best match and writes a
record. The hashes it was judged by stay in the index. Key and partition are those of the request id, so all
that is ever said of a request is in one partition, in order.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kvlens_reader.records.events import Count, LongName, Name, Timestamp, Total
from kvlens_reader.records.reasons import NotJudged
from kvlens_reader.records.trust import Trust

FIRST_WINS = 2**63 - 1
"""A row's version is this minus the offset of its record: of several records of a key the first counts."""

RequestId = Annotated[str, Meta(min_length=1, max_length=128)]
Age = Annotated[float, Meta(ge=0, le=1e9)]
"""Seconds."""


class ChoiceRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """One choice of a router, as an index judged it when it was posted.

    A request that is posted again has several records: with the same replica, the first one counts.
    """

    request_id: RequestId
    """The router's own name for the request."""
    time: Timestamp
    """When the router decided, or when it posted where it does not say."""
    model: Name
    """Model that was asked for."""
    replica: Name
    """Replica that the router chose."""
    tenant: Name = "default"
    """Tenant whose replicas were compared."""
    hash_domain: LongName = ""
    """Hash domain whose replicas were compared; empty: all of the model and tenant."""
    blocks: Count = 0
    """Blocks of the prompt that the router named."""
    best_tokens: Total = 0
    """Tokens of the longest match of any replica, on all tiers; 0 where `not_judged` says why not."""
    chosen_tokens: Total = 0
    """Tokens of the chosen replica's match, never more than `best_tokens`."""
    best_replica: Name = ""
    """A replica with the longest match, the chosen one if it is among them; empty if nobody holds any."""
    not_judged: NotJudged | None = None
    """Why the choice is not compared; None: it is."""
    stale: bool = False
    """The index was more than five seconds behind the log."""
    index_age_seconds: Age = 0.0
    """How far the index was behind the log."""
    trust: Trust = "complete"
    """Worst trust of the chosen replica's sources and of those of `best_replica`."""
    upper_bound: bool = False
    """Some of the longest match is on a medium from which blocks leave unsaid: less may be lost."""
