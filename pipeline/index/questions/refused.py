"""Questions that get no answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from connectors.process.errors import DataError
from schemas.reasons import QuestionRefusal

_STATUS: dict[QuestionRefusal, int] = {
    "unknown_model": 404,
    "unknown_adapter": 404,
    "unknown_replica": 404,
    "too_large": 413,
    "too_many_hashes": 413,
    "answer_too_large": 413,
    "slow_body": 408,
    "busy": 503,
    "not_ready": 503,
    "no_token": 401,
    "too_many_choices": 413,
    "choices_off": 404,
    "unacknowledged": 503,
}


class QuestionRefused(DataError):
    """A question that gets no answer: the reason, and a line for the client."""

    reason: QuestionRefusal
    detail: str
    line = "{reason}: {detail}"

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        return _STATUS.get(self.reason, 400)


_Decoded = TypeVar("_Decoded")


def decoded(decode: Callable[[bytes], _Decoded], body: bytes) -> _Decoded:
    """Return a body as a msgspec decoder reads it. Raises QuestionRefused."""
    try:
        return decode(body)
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        raise QuestionRefused("bad_question", str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise QuestionRefused("malformed", str(error)) from error
