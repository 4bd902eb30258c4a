"""Lines of compiled functions that ran, for `make coverage`: machine code leaves no trace for Python.

A plugin of pytest, to be loaded before what is compiled: `-p tests.support.suite.compiled_lines`. Each
statement of a function is preceded by one that stores a byte, and the whole is compiled as ever, so what is
counted ran as machine code. That code is kept nowhere, since the bytes lie elsewhere in each process. Only
processes of pytest count: those that tests start run what was compiled without marks.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import os
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numba
import numpy as np
import pytest
from coverage import CoverageData
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from connectors.process import compiled

MAX_LINES = 2_000
"""Of a file with compiled functions."""
_MARK = "_line_ran"


@intrinsic
def _line_ran(typing_context: Any, address: Any) -> Any:
    """Store 1 in the byte at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        builder.store(ir.Constant(ir.IntType(8), 1), byte)
        return context.get_dummy_value()

    return types.void(types.intp), generate


class _Marked(ast.NodeTransformer):
    """Puts a mark before each statement of a function, but before its docstring."""

    def __init__(self, address: int) -> None:
        self._address = address

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list) and not isinstance(node, ast.Module):
                setattr(node, name, [each for one in statements for each in self._marked(one)])
        return node

    def _marked(self, statement: ast.stmt) -> list[ast.stmt]:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            return [statement]
        address = ast.Constant(self._address + statement.lineno)
        mark = ast.Expr(ast.Call(ast.Name(_MARK, ast.Load()), [address], []))
        return [ast.copy_location(mark, statement), statement]


class CompiledLines:
    """Compiles as `numba.njit` does, and notes which lines run."""

    def __init__(self, compile_as_ever: Callable[..., Any]) -> None:
        self._compile = compile_as_ever
        self._bytes: dict[str, np.ndarray[Any, Any]] = {}

    def __call__(self, *, cache: bool = False, **options: Any) -> Callable[[FunctionType], Any]:
        return lambda function: self._compile(**options)(self._marked(function))

    def ran(self) -> dict[str, list[int]]:
        """Return {file: its lines that ran}."""
        return {file: np.flatnonzero(noted).tolist() for file, noted in self._bytes.items()}

    def _marked(self, function: FunctionType) -> FunctionType:
        code = function.__code__
        assert not code.co_freevars, f"{function.__qualname__} has values of the function around it"
        noted = self._bytes.setdefault(code.co_filename, np.zeros(MAX_LINES, np.uint8))
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        ast.increment_lineno(tree, code.co_firstlineno - 1)
        (definition,) = tree.body
        assert isinstance(definition, ast.FunctionDef)
        definition.decorator_list = []
        tree = ast.fix_missing_locations(_Marked(noted.ctypes.data).visit(tree))
        flags = __future__.annotations.compiler_flag
        made: dict[str, Any] = {}
        function.__globals__[_MARK] = _line_ran
        exec(compile(tree, code.co_filename, "exec", flags, True), function.__globals__, made)
        marked = made[definition.name]
        marked.__qualname__ = function.__qualname__
        return marked


LINES = CompiledLines(numba.njit)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Compile with marks from now on; the conftest imports what is compiled."""
    compiled._compile = LINES


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Leave what ran beside the data of coverage, which combines both."""
    data = CoverageData(os.environ.get("COVERAGE_FILE", "build/coverage/data"), f"compiled.{os.getpid()}")
    data.add_lines(LINES.ran())
    data.write()
