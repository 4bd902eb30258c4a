"""Reads the meanings written beside the code: docstrings of attributes, comments of bounded reasons."""

from __future__ import annotations

import ast
import inspect
import re
from itertools import pairwise
from types import ModuleType

REASON_LINE = re.compile(r'^\s*"(?P<name>\w+)",(?:\s*#\s*(?P<meaning>.*))?$')


def one_line(docstring: str | None) -> str:
    """Return the paragraphs of a docstring as lines without indentation, separated by a blank line."""
    paragraphs = inspect.cleandoc(docstring or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def attribute_docs(*modules: ModuleType) -> dict[str, dict[str, str]]:
    """Return {class: {attribute: meaning}} of modules.

    A meaning is the string that follows the attribute. An attribute without one takes the meaning that an
    attribute of the same name has in an earlier class of the modules, because repeated dimensions are
    described once; it is empty when there is none either. A class also has the attributes of its base classes
    in these modules.
    """
    classes: dict[str, dict[str, str]] = {}
    described: dict[str, str] = {}
    for node in (node for module in modules for node in _parsed(module).body):
        if isinstance(node, ast.ClassDef):
            own = _strings_after_names(node.body)
            names = filter(None, map(_target, node.body))
            inherited: dict[str, str] = {}
            for base in node.bases:
                if isinstance(base, ast.Name):
                    inherited |= classes.get(base.id, {})
            classes[node.name] = inherited | {
                name: own.get(name) or described.get(name, "") for name in names
            }
            for name, meaning in own.items():
                described.setdefault(name, meaning)
    return classes


def constant_docs(module: ModuleType) -> dict[str, str]:
    """Return {constant: meaning} of the documented constants of a module."""
    return _strings_after_names(_parsed(module).body)


def reason_docs(module: ModuleType) -> dict[str, dict[str, str]]:
    """Return {type: {reason: comment or empty}} of the module's `Literal` types, in order."""
    source = inspect.getsource(module)
    lines = source.splitlines()
    reasons: dict[str, dict[str, str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            body = node.value.slice
            values = body.elts if isinstance(body, ast.Tuple) else [body]
            reasons[_target(node)] = {
                str(value.value): _comment(lines[value.lineno - 1])
                for value in values
                if isinstance(value, ast.Constant)
            }
    return reasons


def _comment(line: str) -> str:
    found = REASON_LINE.match(line)
    return (found["meaning"] or "") if found else ""


def _parsed(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def _target(statement: ast.stmt) -> str:
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return ""


def _strings_after_names(body: list[ast.stmt]) -> dict[str, str]:
    meanings = {}
    for statement, after in pairwise(body):
        name = _target(statement)
        if (
            name
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            meanings[name] = one_line(after.value.value)
    return meanings
