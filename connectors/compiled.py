"""Functions compiled to machine code that run without the interpreter's lock, typed as what they were."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

_Function = TypeVar("_Function", bound=Callable[..., Any])

# What numba gives for them is not what type checkers are told.
_compile: Any = numba.njit
_Pointer: Any = types.CPointer


def compiled(function: _Function) -> _Function:
    """Compile a function at its first call, and keep the code where numba finds a place that can be written.

    That is NUMBA_CACHE_DIR, beside the file, or the user's cache directory. Without any of them every
    process compiles anew.
    """
    # Numba compiles kept code anew when the file of the function changed, not when one it calls into did.
    function.__qualname__ += f"_{_version(cast(FunctionType, function))}"
    try:
        return cast(_Function, _compile(cache=True, nogil=True)(function))
    except RuntimeError:  # numba's way of saying that the code can be kept nowhere
        return cast(_Function, _compile(nogil=True)(function))


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


def inner(function: _Function) -> _Function:
    """Compile a function that only compiled functions call; its code is kept as part of theirs."""
    options = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(_Function, _compile(**options)(function))


def _pointer_to(item: Any) -> Any:
    def typed(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return _Pointer(item)(types.intp), generate

    return intrinsic(typed)


pointer_to_bytes = _pointer_to(types.uint8)
"""Returns bytes at an address (`array.ctypes.data`), for compiled functions.

Passing an array costs a count of its references at each call, and indexing it a check for negative indices.
The array must outlive the pointer; nothing checks bounds.
"""
pointer_to_numbers = _pointer_to(types.int64)
"""The same for whole numbers of eight bytes."""
