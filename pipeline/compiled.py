"""Functions compiled to machine code, typed as what they were."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
import numpy as np

_Function = TypeVar("_Function", bound=Callable[..., Any])

# What numba gives for it is not what type checkers are told.
_compile: Any = numba.njit


def compiled(function: _Function) -> _Function:
    """Compile a function at its first call, and keep the code where numba finds a place that can be written.

    That is NUMBA_CACHE_DIR, beside the file, or the user's cache directory. Without any of them every
    process compiles anew.
    """
    # Numba compiles kept code anew when the file of the function changed, not when one it calls into did.
    function.__qualname__ += f"_{_version(cast(FunctionType, function))}"
    try:
        return cast(_Function, _compile(cache=True)(function))
    except RuntimeError:  # numba's way of saying that the code can be kept nowhere
        return cast(_Function, _compile(function))


def _version(function: FunctionType) -> str:
    """Return a digest of what the machine code of a function is made of: its source and all it refers to."""
    digest = hashlib.sha256(inspect.getsource(function).encode())
    for name in function.__code__.co_names:
        value: Any = function.__globals__.get(name)
        called = getattr(value, "py_func", None)
        if called is not None:
            digest.update(_version(called).encode())
        elif isinstance(value, np.ndarray):
            digest.update(value.tobytes())
        elif isinstance(value, bool | int | float | str | tuple | np.generic | np.dtype):
            digest.update(repr(value).encode())
    return digest.hexdigest()[:16]
