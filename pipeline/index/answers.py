"""Answers as they travel: who holds how much of a prompt, and how far that can be trusted."""

from __future__ import annotations

import msgspec

from schemas.trust import Trust


class RankMatch(msgspec.Struct, gc=False):
    """What one data-parallel rank holds of the beginning of a prompt.

    The engine can use all of it: on the GPU every attention group holds what it needs, and each lower tier
    continues where the one above ends.
    """

    gpu: int
    """Tokens on its GPU."""
    cpu: int
    """Tokens on its GPU and, from there on, its CPU."""
    disk: int
    """Tokens on these and, from there on, on whatever is below."""
    matched_tokens: int
    """The same as `disk`: all of it."""
    matched_blocks: int
    """How many of the prompt's blocks that is."""
    trust: Trust
    """How completely the source's stream is known: complete, partial or degraded."""
    event_age_seconds: float | None
    """Since the source's last batch of events, by the engine's clock; null: it sent none."""
    upper_bound: bool = False
    """True: the engine may find less, because some of it is on a medium that does not announce what leaves,
    or from which only whole chunks of several blocks are loaded."""
    lower_bound: bool = False
    """True: the engine may find more, because it does not announce how far an attention group looks back."""
    at_most_tokens: int = 0
    """The most that the engine may find: `matched_tokens`, or more if that is a lower bound."""


class InstanceMatch(msgspec.Struct):
    """What one replica holds: of each figure, the highest of its ranks."""

    longest_matched: int
    """Tokens in all tiers."""
    gpu: int
    """Tokens on the GPU."""
    cpu: int
    """Tokens on GPU and CPU."""
    disk: int
    """Tokens in all tiers."""
    dp: dict[str, int]
    """Tokens on the GPU of each rank."""
    ranks: dict[str, RankMatch]
    """Each rank that holds any."""


class Answer(msgspec.Struct):
    """Who holds a beginning of a prompt; replicas that hold nothing of it are left out."""

    instances: dict[str, InstanceMatch]
    """By replica id."""
    scores: dict[str, dict[str, int]]
    """Tokens on the GPU by replica and rank: what older clients read."""


class IndexState(msgspec.Struct):
    """How far the index itself can be trusted."""

    age_seconds: float
    """Seconds since it had last read everything in the log, for the partition where that is longest ago."""
    stale: bool
    """Whether that is longer ago than five seconds."""
    lag_records: int
    """Records that are known to be in the log and are not read yet."""
    at: float | None = None
    """The past moment that answers describe, in seconds since the epoch; null: the present."""


class QueryResponse(msgspec.Struct):
    """Answer to one prompt."""

    instances: dict[str, InstanceMatch]
    """By replica id."""
    scores: dict[str, dict[str, int]]
    """Tokens on the GPU by replica and rank."""
    index: IndexState
    """State of the index."""


class PromptsResponse(msgspec.Struct):
    """Answers to several prompts."""

    answers: list[Answer]
    """In the order of the prompts."""
    index: IndexState
    """State of the index."""


class ChoicesResponse(msgspec.Struct):
    """The choices are in the log."""

    accepted: int
    """All choices of the request: Kafka has acknowledged them."""
    judged: int
    """Of these, those that were compared with the best match."""
    worse: int
    """Of these, those whose replica did not have the longest match."""
    lost_tokens: int
    """Tokens by which the matches of those were shorter than the longest, in total."""
    index: IndexState
    """State of the index when it had judged them."""


class SourceState(msgspec.Struct):
    """What the index knows of one event stream."""

    replica: str
    """Replica id."""
    dp_rank: int
    """Data-parallel rank."""
    model: str
    """Model name."""
    hash_domain: str
    """Hash domain: hashes compare only inside one."""
    tenant: str
    """From the replica's configuration."""
    engine: str
    """Name of the engine; empty while nothing seen shows it."""
    trust: Trust
    """How completely the stream is known."""
    event_age_seconds: float | None
    """Since its last batch of events; null: it sent none."""
    closed: str
    """Why it ended: empty while it is open."""
    blocks: dict[str, int]
    """Distinct blocks it holds, by medium, summed over all groups."""


class ReplicasResponse(msgspec.Struct):
    """Every event stream that the index follows."""

    replicas: list[SourceState]
    """By replica and rank."""
    index: IndexState
    """State of the index."""


class Problem(msgspec.Struct):
    """Why there is no answer."""

    error: str
    """One of the reasons."""
    detail: str
    """What was wrong."""
