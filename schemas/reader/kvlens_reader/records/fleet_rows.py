# Copied from schemas/fleet_rows.py by `python -m pipeline.generated`.
"""Rows of the fleet agent: what was filled and why, copies, the capacity curve, prefixes, choices."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from kvlens_reader.records.trust import Trust


class FillsRow(msgspec.Struct, frozen=True, gc=False):
    """Why blocks had to be filled on the GPU of a source in a window, in one shard of the hash space."""

    TABLE: ClassVar[str] = "fills_10s"

    window: datetime
    """Start of the ten-second window, engine time."""
    hash_domain: str
    """model/hash scheme/tenant: hashes compare only inside one domain."""
    model: str
    replica: str
    dp_rank: int
    group_idx: int
    shard: int
    """Part of the hash space (partition of the residency topic): add shards up."""
    filled_blocks: int
    """Distinct blocks whose first copy came: the sum of all causes but `reannounced`."""
    filled_tokens: int
    """Tokens in `filled_blocks`."""
    promoted_blocks: int
    """Resident here on a lower tier: a hit there."""
    promoted_tokens: int
    """Tokens in `promoted_blocks`."""
    transferred_blocks: int
    """Came from another engine or a store, not computed here. Only of replicas that receive KV."""
    transferred_tokens: int
    """Tokens in `transferred_blocks`."""
    transferred_again_tokens: int
    """Of these, evicted here within the horizon: more cache would have kept them."""
    generated_blocks: int
    """Decoding completed it, as far as the stream shows."""
    generated_tokens: int
    """Tokens in `generated_blocks`."""
    peer_blocks: int
    """Another source held it, not lost here: routing, or a shared tier, would have saved it."""
    peer_tokens: int
    """Tokens in `peer_blocks`."""
    peer_at_receivers_tokens: int
    """Of these, held only by sources that receive KV, as this one does not: no routing matter."""
    peer_and_evicted_blocks: int
    """Another source held it, evicted here within the horizon: routing or more cache."""
    peer_and_evicted_tokens: int
    """Tokens in `peer_and_evicted_blocks`."""
    evicted_blocks: int
    """Evicted here within the horizon, held by nobody: more cache here would have saved it."""
    evicted_tokens: int
    evicted_elsewhere_blocks: int
    """Only others had and evicted it: more cache there, and routing."""
    evicted_elsewhere_tokens: int
    """Tokens in `evicted_elsewhere_blocks`."""
    evicted_at_receivers_tokens: int
    """Of these, evicted only by sources that receive KV, as this one does not: no routing or capacity
    matter."""
    cleared_blocks: int
    """Lost by a clear or a restart: the warm-up cost of a rollout."""
    cleared_tokens: int
    """Tokens in `cleared_blocks`."""
    cold_blocks: int
    """Not seen in the fleet within the horizon."""
    cold_tokens: int
    """Tokens in `cold_blocks`."""
    unknown_blocks: int
    """No cause known, and this source is or was not complete."""
    unknown_tokens: int
    """Tokens in `unknown_blocks`."""
    reannounced_blocks: int
    """Already resident here: no fill."""
    reannounced_tokens: int
    """Tokens in `reannounced_blocks`."""
    regret_hist: list[int]
    """Evicted blocks filled again, here or elsewhere, by the time between; buckets like `lifetime_hist`."""
    sampled_one_in: int
    """Figures rest on one block in this many, scaled up; 1: on all."""
    trust: Trust
    version: int


class RedundancyRow(msgspec.Struct, frozen=True, gc=False):
    """How many sources held the same blocks at the end of a window, in one shard of the hash space."""

    TABLE: ClassVar[str] = "redundancy_10s"

    window: datetime
    hash_domain: str
    model: str
    medium: str
    group_idx: int
    shard: int
    owners_1: int
    """Distinct blocks that one source held. One less counts in `owners_*` where both some that receive KV and
    others held the block: a transfer needs that copy."""
    owners_2: int
    """Distinct blocks that two held."""
    owners_3: int
    """Distinct blocks that three held."""
    owners_4_7: int
    """Distinct blocks that four to seven held."""
    owners_8_up: int
    """Distinct blocks that eight or more held."""
    unique_tokens: int
    """Tokens in distinct blocks, each once."""
    physical_tokens: int
    """Tokens in distinct blocks, once for each source that held them."""
    received_tokens: int
    """Of these, one copy of each block that both receivers of KV and others held."""
    sampled_one_in: int
    trust: Trust
    """Worst of the sources of the hash domain that changed something here."""
    version: int


class CapacityCurveRow(msgspec.Struct, frozen=True, gc=False):
    """Extra cache that would have kept what a source evicted and filled again in a window."""

    TABLE: ClassVar[str] = "capacity_curve_10s"

    window: datetime
    hash_domain: str
    model: str
    replica: str
    dp_rank: int
    group_idx: int
    shard: int
    needed_hist: list[int]
    """Tokens filled again, by the extra cache that would have kept them: for element k (from 0) 2**k tokens
    suffice and 2**(k-1) may not; trailing zeros cut."""
    sampled_one_in: int
    trust: Trust
    version: int


class HotPrefixRow(msgspec.Struct, frozen=True, gc=False):
    """A prefix with many copies across replicas at the end of a window, or with much filled again in it."""

    TABLE: ClassVar[str] = "hot_prefixes_10s"

    window: datetime
    hash_domain: str
    model: str
    group_idx: int
    lora: str
    """LoRA adapter; empty without one."""
    prefix: int
    """Hash of its first block."""
    shard: int
    depth_blocks: int
    """Blocks of the chain down to the last one that several sources held, or that was filled again; 65,535 at
    most."""
    owners: int
    """The most sources that held one of its blocks."""
    shared_tokens: int
    """Tokens in blocks that several sources held, each once."""
    duplicated_tokens: int
    """Copies beyond the first; of all prefixes: physical minus unique tokens."""
    refilled_tokens: int
    """Tokens filled again, for all causes that count as avoidable."""
    refilled_tokens_missing: int
    """At most this many are missing from `refilled_tokens`; 0: exact."""
    sampled_one_in: int
    trust: Trust
    """Worst of the sources of the hash domain that hold or lost something here."""
    version: int
    """Offset of the record that closed the window."""


class ChoiceRow(msgspec.Struct, frozen=True, gc=False):
    """A router's choice of a replica for a request, as an index judged it when it was posted."""

    TABLE: ClassVar[str] = "choices"

    time: datetime
    """When the router decided, or else posted."""
    model: str
    """Model that was asked for."""
    replica: str
    """Replica that the router chose."""
    request_id: str
    """The router's own name for the request."""
    tenant: str
    """Tenant whose replicas were compared."""
    hash_domain: str
    """That of the replicas compared; empty: all of the model and tenant."""
    blocks: int
    """Blocks of the prompt that the router named."""
    best_tokens: int
    """Tokens of the longest match of any replica, on all tiers; 0: not judged."""
    chosen_tokens: int
    """Tokens of the chosen replica's match."""
    best_replica: str
    """A replica with the longest match, the chosen one if it has it; empty if nobody held any."""
    not_judged: str
    """Why the choice is not judged, unknown_replica or share; empty: it is."""
    stale: bool
    """The index was over five seconds behind the log."""
    index_age_seconds: float
    """How far it was behind."""
    trust: Trust
    """Worst of the sources of `replica` and `best_replica`."""
    upper_bound: bool
    """Some of the longest match is where blocks leave unsaid: less may be lost."""
    version: int
    """2**63 - 1 minus the offset: of a request posted again the first record counts."""
