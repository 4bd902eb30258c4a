"""No file of the product imports one that imports it, however far around: also not inside of a function."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

from tests.support.checkout import ROOT


def _modules() -> dict[str, Path]:
    files = (file for room in ("connectors", "pipeline", "schemas") for file in (ROOT / room).rglob("*.py"))
    names = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in files}
    return {name.removesuffix(".__init__"): file for name, file in names.items()}


def _imported(file: Path, modules: dict[str, Path]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inside & modules.keys()) or {node.module}
    return found & modules.keys()


def test_no_circle() -> None:
    modules = _modules()
    graph = {name: _imported(file, modules) - {name} for name, file in modules.items()}
    order = [*TopologicalSorter(graph).static_order()]  # raises CycleError, which names the circle
    assert order.index("schemas.settings") < order.index("pipeline.cli.main")
    assert graph["pipeline.verify.fleet.prefixes"] >= {"pipeline.verify.fleet.shown"}
