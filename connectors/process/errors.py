"""Errors that declare the data they carry, and among them those that are one line for the operator."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, ClassVar

if sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:
    from typing_extensions import dataclass_transform


@dataclass_transform(eq_default=False, field_specifiers=(field,))
class DataError(Exception):
    """An error that declares its data as annotations, and its text as a template.

    Each subclass is made a dataclass: what it annotates are attributes and the arguments of its constructor.
    `str()` is `line` with the attributes filled in, unless a subclass computes more. A subclass whose `line`
    names something that is no attribute raises TypeError.
    """

    line: ClassVar[str] = ""
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(eq=False, repr=False)(cls)
        named = {name for _, name, _, _ in Formatter().parse(cls.line) if name is not None}
        if unknown := named - set(cls.__dataclass_fields__):
            raise TypeError(f"the line of {cls.__name__} names {sorted(unknown)}, which it has not")

    def __str__(self) -> str:
        return self.line.format_map({name: getattr(self, name) for name in self.__dataclass_fields__})


class OperatorError(DataError):
    """Something outside the program is wrong; `str()` is one line that says what, and what to do."""

    heals = False
    """Whether it may end while the process waits: somebody starts, creates, repairs or permits something."""
    again_seconds = 0.5
    """Pause before the next try: a recovery is noticed within this time."""
