"""What a router posts of its choices."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from pipeline.index.questions.chains import Chain
from pipeline.index.questions.refused import QuestionRefused, decoded
from schemas.choices import RequestId
from schemas.events import LongName, Name, Timestamp

MOST_CHOICES = 1000
"""In one request."""
OLDEST_SECONDS = 3600.0
"""A choice made longer ago would be compared with caches that have nothing to do with it."""
AHEAD_SECONDS = 60.0
"""How far the router's clock may be ahead."""


class Choice(msgspec.Struct, frozen=True):
    """One request, and where the router sent it."""

    request_id: RequestId
    """The router's own id of the request; if posted again with the same replica, the request counts once."""
    block_hashes: Chain
    """Hashes of the prompt's blocks, as in a question."""
    instance_id: Annotated[str, Meta(min_length=1, max_length=256)]
    """Replica that the router chose."""
    time: Timestamp | None = None
    """When it chose, in seconds since the epoch, at most an hour ago; null: now. Send it with choices that
    may be posted twice: without a time, a choice that is posted again in another hour counts again."""


class Choices(msgspec.Struct, frozen=True):
    """Choices among the replicas of one model; unknown fields are ignored."""

    choices: list[Choice]
    """In any order."""
    model_name: Name = ""
    """Model, as the replicas' settings call it."""
    model: Name = ""
    """The same, as the RFC calls it."""
    hash_domain: LongName | None = None
    """Compare with replicas of this hash domain only; without it, with all of the model and tenant."""
    tenant_id: Name = "default"
    """Compare with replicas of this tenant only."""
    block_size: Annotated[int, Meta(ge=0, le=2**32 - 1)] = 0
    """Tokens of a block where no replica announces them, as in a question."""

    @property
    def asked_model(self) -> str:
        """Return the model by either name."""
        return self.model_name or self.model


_decode = msgspec.json.Decoder(Choices).decode


def posted(body: bytes, *, most_hashes: int, now: float) -> Choices:
    """Return the choices of a JSON body; `now` is in seconds since the epoch. Raises QuestionRefused."""
    found = decoded(_decode, body)
    if not found.asked_model:
        raise QuestionRefused("bad_question", "model_name is missing")
    if len(found.choices) > MOST_CHOICES:
        raise QuestionRefused(
            "too_many_choices", f"{len(found.choices):,} choices, {MOST_CHOICES:,} are allowed"
        )
    hashes = sum(len(choice.block_hashes) for choice in found.choices)
    if hashes > most_hashes:
        raise QuestionRefused("too_many_hashes", f"{hashes:,} hashes, {most_hashes:,} are allowed")
    for at, choice in enumerate(found.choices):
        if choice.time is not None and not now - OLDEST_SECONDS <= choice.time <= now + AHEAD_SECONDS:
            raise QuestionRefused(
                "bad_question",
                f"time {choice.time:.0f} is not within the last hour - at `$.choices[{at}].time`",
            )
    return found
