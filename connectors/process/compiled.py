"""Functions compiled to machine code that keep their Python signatures."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_Function = TypeVar("_Function", bound=Callable[..., Any])

# numba's own types would hide the signatures from mypy.
_compile: Any = numba.njit
_Pointer: Any = types.CPointer
_Tuple: Any = types.BaseTuple
_OWN_SOURCE = inspect.getsource(sys.modules[__name__])
"""Part of the version of all compiled code: it decides how pointers are read and how code is compiled."""


def compiled(function: _Function) -> _Function:
    """Compile a function at its first call, and cache the code where numba finds a directory to write to.

    That is NUMBA_CACHE_DIR, beside the file, or the user's cache directory. Without any of them every
    process compiles again. The code holds the interpreter's lock: for loops over data that other threads may
    change, and for short loops, which would wait for the lock longer than they run.
    """
    return _compiled(function, nogil=False)


def compiled_nogil(function: _Function) -> _Function:
    """Compile a function as `compiled` does, to run without the interpreter's lock: other threads go on."""
    return _compiled(function, nogil=True)


def _compiled(function: _Function, *, nogil: bool) -> _Function:
    # Numba compiles cached code again if the function's file has changed, not if one that it calls into has.
    function.__qualname__ += f"_{_version(cast(FunctionType, function))}{'_nogil' if nogil else ''}"
    try:
        return cast(_Function, _compile(cache=True, nogil=nogil)(function))
    except RuntimeError:  # what numba raises if it finds no directory for its cache
        return cast(_Function, _compile(nogil=nogil)(function))


@cache
def _version(function: FunctionType) -> str:
    """Return a digest of what determines a function's machine code: its bytecode and all it refers to.

    Not of its source: to find where that ends Python tokenizes it, a tenth of a second for all functions.
    """
    said = repr(_said(function.__code__)), repr(function.__defaults__), _OWN_SOURCE
    digest = hashlib.sha256("".join(said).encode())
    for name in function.__code__.co_names:
        value: Any = function.__globals__.get(name)
        called = getattr(value, "py_func", None)
        if called is not None:
            digest.update(_version(called).encode())
            digest.update(repr(value.targetoptions).encode())
        elif isinstance(value, np.ndarray):
            digest.update(value.tobytes())
        elif isinstance(value, bool | int | float | str | tuple | np.generic | np.dtype):
            digest.update(repr(value).encode())
    return digest.hexdigest()[:16]


def _said(code: CodeType) -> tuple[Any, ...]:
    """Return what a code object and those inside it contain, without their place in the source."""
    constants = [_said(each) if isinstance(each, CodeType) else each for each in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants


def inner(function: _Function) -> _Function:
    """Compile a function that only compiled functions call; its code is cached as part of theirs."""
    options = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(_Function, _compile(**options)(function))


def inlined(function: _Function) -> _Function:
    """Make a function part of every compiled one that calls it.

    For functions that take named tuples of arrays: a call would pass each array on its own, and taking an
    array out of the tuple counts its references.
    """
    return cast(_Function, _compile(inline="always")(function))


def _uncounted(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, _Tuple):
        parts = [
            _uncounted(context, builder, each, builder.extract_value(value, at))
            for at, each in enumerate(kind.types)
        ]
        return context.make_tuple(builder, kind, parts)
    array = context.make_array(kind)(context, builder, value)
    array.meminfo = array.meminfo.type(None)
    return array._getvalue()


@cast(Callable[[Any], Any], intrinsic)
def borrowed(typing_context: Any, value: Any) -> Any:
    """Return an array, or a named tuple of arrays, whose references a compiled function does not count.

    Counting them, at each access to an array in a tuple, takes longer than many loops do. For arguments only:
    the caller keeps them alive until the function returns.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _uncounted(context, builder, value, arguments[0])

    return value(value), generate


@cast(Callable[[Any], Any], intrinsic)
def fetch_ahead(typing_context: Any, array: Any, at: Any) -> Any:
    """Prefetch an item of an array into the CPU's cache, for compiled functions; it may lie behind the end.

    Items far apart are then loaded in parallel, and not each after the one before it was used.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(array)(context, builder, arguments[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        prefetch = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        )
        address = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        for_writing, keep, of_data = ir.Constant(number, 1), ir.Constant(number, 3), ir.Constant(number, 1)
        builder.call(prefetch, [address, for_writing, keep, of_data])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


def _pointer_to(item: Any) -> Any:
    def typed(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return _Pointer(item)(types.intp), generate

    return intrinsic(typed)


@cast(Callable[[Any], Any], intrinsic)
def word_at(typing_context: Any, pointer: Any, offset: Any) -> Any:
    """Return the eight bytes at `offset` behind a pointer to bytes as one number, for compiled functions.

    For comparing only, as the byte order is the machine's. Bounds are not checked.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = builder.gep(arguments[0], [arguments[1]])
        word = builder.load(builder.bitcast(address, context.get_value_type(types.uint64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(_Pointer(types.uint8), types.intp), generate


def _ordered(result: Any, order: str) -> Any:
    def typed(typing_context: Any, pointer: Any, offset: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address = builder.gep(arguments[0], [arguments[1]])
            number = context.get_value_type(types.uint64)
            word = builder.load(builder.bitcast(address, number.as_pointer()))
            word.align = 1
            if sys.byteorder != order:
                swap = builder.module.declare_intrinsic("llvm.bswap", [number])
                word = builder.call(swap, [word])
            return builder.bitcast(word, context.get_value_type(result))

        return result(_Pointer(types.uint8), types.intp), generate

    return intrinsic(typed)


big_endian_at = _ordered(types.uint64, "big")
"""Returns the unsigned big-endian integer in the eight bytes at `offset` behind a pointer to bytes.

Bounds are not checked.
"""
little_endian_at = _ordered(types.uint64, "little")
"""The same, little-endian."""
double_at = _ordered(types.float64, "big")
"""The same as `big_endian_at`, for a double (IEEE 754)."""
pointer_to_bytes = _pointer_to(types.uint8)
"""Returns bytes at an address (`array.ctypes.data`), for compiled functions.

Passing an array costs a count of its references at each call, and indexing it a check for negative indices.
The array must outlive the pointer; bounds are not checked.
"""
pointer_to_numbers = _pointer_to(types.int64)
"""The same for signed integers of eight bytes."""
pointer_to_words = _pointer_to(types.uint64)
"""The same for unsigned integers of eight bytes."""
