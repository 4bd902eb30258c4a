"""Functions whose parts are chosen before compilation: one source, and machine code for each choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])


def part(*given: Any) -> Any:
    """Stand for a part in a template, which every choice of parts has to supply."""
    raise NotImplementedError


def over(template: _Function, name: str, parts: Mapping[str, Any]) -> _Function:
    """Return a function with the code of a template, its globals replaced by the `parts` of the same names.

    Compiling it costs what a copy by hand would, and nothing is chosen while it runs. There may be more parts
    than a template uses: those of several templates, or everything in a module.
    """
    text = cast(FunctionType, template)
    named = {part: parts[part] for part in text.__code__.co_names if part in parts}
    made = FunctionType(text.__code__, {**text.__globals__, **named}, name, text.__defaults__)
    made.__qualname__, made.__doc__ = name, text.__doc__
    return cast(_Function, made)
