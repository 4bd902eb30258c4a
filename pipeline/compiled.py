"""Functions compiled to machine code, typed as what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])

# What numba gives for it is not what type checkers are told.
_compile: Any = numba.njit


def compiled(function: _Function) -> _Function:
    """Compile a function at its first call, and keep the code where numba finds a place that can be written.

    That is NUMBA_CACHE_DIR, beside the file, or the user's cache directory. Without any of them every
    process compiles anew.
    """
    try:
        return cast(_Function, _compile(cache=True)(function))
    except RuntimeError:  # numba's way of saying that the code can be kept nowhere
        return cast(_Function, _compile(function))
