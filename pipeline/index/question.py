"""What may be asked: chains of block hashes of one model, in any form that engines use."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from pipeline.residency.counting.block_table import Hashes
from schemas.events import LongName, Name
from schemas.reasons import QuestionRefusal

_SHORTEST_HEX = 16
_HEX = re.compile("[0-9a-fA-F]+")
_LARGEST, _SMALLEST = (1 << 64) - 1, -(1 << 63)
_STATUS: dict[QuestionRefusal, int] = {
    "unknown_model": 404,
    "too_large": 413,
    "too_many_hashes": 413,
    "answer_too_large": 413,
    "slow_body": 408,
    "busy": 503,
    "not_ready": 503,
    "no_token": 401,
}

Hash = int | str
Chain = list[Hash]


class QuestionRefused(Exception):
    """A question that gets no answer: the reason, and a line for whoever asked."""

    def __init__(self, reason: QuestionRefusal, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        return _STATUS.get(self.reason, 400)

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


class Question(msgspec.Struct, frozen=True):
    """A prompt, or several prompts of one model; fields that are not known are passed over."""

    model_name: Name = ""
    """Model, as the replicas' settings call it."""
    model: Name = ""
    """The same, as the RFC calls it."""
    block_hashes: Chain | None = None
    """Hashes of a prompt's blocks as the engine computes them, the first one first: whole numbers of 64 bits,
    signed or not, or digests as 16 or more hexadecimal digits, of which the last eight bytes count."""
    seq_hashes: Chain | None = None
    """The same, as the RFC calls it."""
    prompts: list[Chain] | None = None
    """Several prompts, each like `block_hashes`; their answers come in the same order."""
    hash_domain: LongName | None = None
    """Only replicas of this hash domain; without it, all of the model and tenant."""
    tenant_id: Name = "default"
    """Only replicas of this tenant."""
    lora_name: Name | None = None
    """Only replicas that used this adapter since they started."""
    instance_id: Name | None = None
    """Only this replica."""
    block_size: Annotated[int, Meta(ge=0, le=2**32 - 1)] = 0
    """Tokens of a block where no replica says them, as of CPU tiers that do not."""
    limit: Annotated[int, Meta(ge=0)] = 0
    """Most replicas in an answer, those with the longest match; 0: all that have any."""

    @property
    def asked_model(self) -> str:
        """Return the model by either name."""
        return self.model_name or self.model

    @property
    def chains(self) -> list[Chain]:
        """Return all prompts. Raises QuestionRefused unless they are given in exactly one way."""
        given = [chain for chain in (self.block_hashes, self.seq_hashes) if chain is not None]
        if len(given) + (self.prompts is not None) != 1:
            raise QuestionRefused("bad_question", "give one of block_hashes, seq_hashes and prompts")
        return self.prompts if self.prompts is not None else given


_decode = msgspec.json.Decoder(Question).decode


def parsed(body: bytes, *, most_hashes: int) -> Question:
    """Return the question of a JSON body. Raises QuestionRefused."""
    try:
        question = _decode(body)
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        raise QuestionRefused("bad_question", str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise QuestionRefused("malformed", str(error)) from error
    if not question.asked_model:
        raise QuestionRefused("bad_question", "model_name is missing")
    hashes = sum(map(len, question.chains))
    if hashes > most_hashes:
        raise QuestionRefused("too_many_hashes", f"{hashes:,} hashes, {most_hashes:,} are allowed")
    return question


def hashes_of(chain: Chain) -> Hashes:
    """Return the 64 bits of each hash, as the connector reduces them. Raises QuestionRefused."""
    # numpy would read a text of decimal digits as a number.
    if {*map(type, chain)} == {int}:
        try:
            return np.array(chain, np.uint64)
        except OverflowError:  # some are signed
            pass
    return np.array([_reduced(value) for value in chain], np.uint64)


def _reduced(value: Hash) -> int:
    if isinstance(value, int):
        if not _SMALLEST <= value <= _LARGEST:
            raise QuestionRefused("bad_hash", f"a number of {value.bit_length()} bits; 64 are allowed")
        return value & _LARGEST
    digits = value.removeprefix("0x")
    if len(digits) < _SHORTEST_HEX or len(digits) % 4 or not _HEX.fullmatch(digits):
        raise QuestionRefused("bad_hash", f"not the hexadecimal digits of a digest: {value[:80]!r}")
    return int(digits[-_SHORTEST_HEX:], 16)
