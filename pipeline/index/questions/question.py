"""What may be asked: chains of block hashes of one model, in any form that engines use."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Raw

from pipeline.index.questions.chains import Chain, Chains, chains_of
from pipeline.index.questions.digits import read_digits
from pipeline.index.questions.refused import QuestionRefused, decoded
from schemas.events import LongName, Name

MOST_HASHES = 65_536
"""In one request, over all its prompts."""
_NULL = b"null"
_NOT_GIVEN = Raw(_NULL)


class About(msgspec.Struct, frozen=True):
    """Which replicas a question is about, and how many of them its answer may name."""

    model_name: Name = ""
    """Model, as the replicas' settings call it."""
    model: Name = ""
    """The same, as the RFC calls it."""
    hash_domain: LongName | None = None
    """Only replicas of this hash domain; without it, all of the model and tenant."""
    tenant_id: Name = "default"
    """Only replicas of this tenant."""
    lora_name: Name | None = None
    """Only replicas that used this adapter since they started."""
    instance_id: Name | None = None
    """Only this replica."""
    block_size: Annotated[int, Meta(ge=0, le=2**32 - 1)] = 0
    """Tokens of a block where no replica announces them, as some CPU tiers do not."""
    limit: Annotated[int, Meta(ge=0)] = 0
    """Largest number of replicas in an answer, those with the longest match; 0: all that have any."""

    @property
    def asked_model(self) -> str:
        """Return the model by either name."""
        return self.model_name or self.model


class Question(About, frozen=True):
    """A prompt, or several prompts of one model; unknown fields are ignored."""

    block_hashes: Chain | None = None
    """Hashes of a prompt's blocks as the engine computes them, in order: whole numbers of 64 bits, signed or
    not, as numbers or all as strings of decimal digits; or digests of 8, 16 or 32 bytes, all as strings of
    hexadecimal digits, of which the last eight bytes count."""
    seq_hashes: Chain | None = None
    """The same, as the RFC calls it."""
    prompts: list[Chain] | None = None
    """Several prompts, each like `block_hashes`; their answers come in the same order."""

    @property
    def chains(self) -> list[Chain]:
        """Return all prompts. Raises QuestionRefused unless they are given in exactly one way."""
        given = [chain for chain in (self.block_hashes, self.seq_hashes) if chain is not None]
        if len(given) + (self.prompts is not None) != 1:
            raise QuestionRefused("bad_question", "give one of block_hashes, seq_hashes and prompts")
        return self.prompts if self.prompts is not None else given


class _Unread(About, frozen=True):
    """A question whose hashes are still text."""

    block_hashes: Raw = _NOT_GIVEN
    seq_hashes: Raw = _NOT_GIVEN
    prompts: Raw = _NOT_GIVEN


class Asked(NamedTuple):
    """A question as it is looked up."""

    about: About
    chains: Chains
    several: bool
    """Whether it came as `prompts`, so that the response is a list of answers."""


_decode = msgspec.json.Decoder(Question).decode
_decode_unread = msgspec.json.Decoder(_Unread).decode


def asked(body: bytes, *, most_hashes: int) -> Asked:
    """Return the question of a JSON body. Raises QuestionRefused."""
    found = _of_numbers(body, most_hashes)
    if found is not None:
        return found
    question = parsed(body, most_hashes=most_hashes)
    return Asked(question, chains_of(question.chains), question.prompts is not None)


def parsed(body: bytes, *, most_hashes: int) -> Question:
    """Return the question of a JSON body, with its hashes as written. Raises QuestionRefused."""
    question = decoded(_decode, body)
    if not question.asked_model:
        raise QuestionRefused("bad_question", "model_name is missing")
    # A prompt without hashes is answered, too, so it counts as one.
    hashes = sum(max(1, len(chain)) for chain in question.chains)
    if hashes > most_hashes:
        raise QuestionRefused("too_many_hashes", f"{hashes:,} hashes, {most_hashes:,} are allowed")
    return question


def _of_numbers(body: bytes, most_hashes: int) -> Asked | None:
    """Return a question whose hashes are whole numbers; None for any other, and for anything invalid."""
    try:
        question = _decode_unread(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    one, same, several = map(bytes, (question.block_hashes, question.seq_hashes, question.prompts))
    given = [text for text in (one, same, several) if text != _NULL]
    if len(given) != 1 or not question.asked_model:
        return None
    chains = read_digits(given[0], several=several != _NULL, most_hashes=most_hashes)
    if chains is None or len(chains.hashes) + chains.empty > most_hashes:
        return None
    return Asked(question, chains, several != _NULL)
