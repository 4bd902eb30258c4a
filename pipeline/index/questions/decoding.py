"""JSON that is asked or posted, with its failures as refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from pipeline.index.questions.refused import QuestionRefused

_Decoded = TypeVar("_Decoded")


def decoded(decode: Callable[[bytes], _Decoded], body: bytes) -> _Decoded:
    """Return what a decoder of msgspec makes of a body. Raises QuestionRefused."""
    try:
        return decode(body)
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        raise QuestionRefused("bad_question", str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise QuestionRefused("malformed", str(error)) from error
