"""Sources of other people's code, to notice when it changes."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path


def digests(names: Iterable[str]) -> dict[str, str]:
    """Return what tells one text of `module:Class.function` from another, by that name.

    It is of the file: what a running process has put in its place does not count. Raises LookupError for what
    is not there.
    """
    return {name: hashlib.sha256(_source(name).encode()).hexdigest()[:12] for name in names}


def _source(name: str) -> str:
    module, _, path = name.partition(":")
    found = find_spec(module)
    if found is None or found.origin is None:
        raise LookupError(f"no module {module}")
    text = Path(found.origin).read_text()
    node: ast.AST = ast.parse(text)
    for part in path.split("."):
        inside = {
            each.name: each
            for each in ast.iter_child_nodes(node)
            if isinstance(each, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        }
        if part not in inside:
            raise LookupError(f"no {part} in {name}")
        node = inside[part]
    return ast.get_source_segment(text, node) or ""


def touched(file: Path) -> dict[str, int]:
    """Return the names with an underscore that a file uses of others, but none of its own: name -> line."""
    nodes = [*ast.walk(ast.parse(file.read_text()))]
    own = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    own |= {
        node.target.id
        for node in nodes
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return {
        node.attr: node.lineno
        for node in nodes
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.endswith("_")
        and node.attr not in own | _OF_TUPLES
        and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
    }


_OF_TUPLES = {"_replace", "_asdict", "_make", "_fields"}


def imported(file: Path) -> set[str]:
    """Return the modules that a file imports by their whole names."""
    return {
        name
        for node in ast.walk(ast.parse(file.read_text()))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
