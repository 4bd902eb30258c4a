"""Metrics as the telemetry modules define them, read from their source.

Reading instead of importing keeps the pipeline free of the connectors.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

KINDS = {name: name.lower() for name in ("Counter", "Gauge", "Histogram", "Info", "Summary")}
"""Class of prometheus_client -> type in the exposition format."""


_NAMED = ("name", "documentation", "labelnames")
"""Arguments that a catalogue needs, in the order of the constructors."""


@dataclass(frozen=True)
class Metric:
    """One metric, named as it is exposed."""

    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...]


def metrics_in(source: str) -> list[Metric]:
    """Return the metrics that a module's source constructs, in order.

    Raises ValueError when a name, meaning or label is not written out in the module.
    """
    return sorted(_found(ast.parse(source)), key=lambda metric: metric.name)


def _found(tree: ast.Module) -> Iterator[Metric]:
    constants = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS:
            arguments = dict(zip(_NAMED, node.args, strict=False))
            arguments |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg in _NAMED}
            name, meaning, labels = (_value(arguments.get(name), constants) for name in _NAMED)
            kind = KINDS[node.func.id]
            yield Metric(_exposed(str(name), kind), kind, " ".join(str(meaning).split()), tuple(labels or ()))


def _value(node: ast.expr | None, constants: dict[str, ast.expr]) -> str | tuple[str, ...] | None:
    if isinstance(node, ast.Name):
        return _value(constants.get(node.id), constants)
    return None if node is None else ast.literal_eval(node)


def _exposed(name: str, kind: str) -> str:
    """Return the name in the exposition format, where a counter ends in `_total` and an info in `_info`."""
    suffix = {"counter": "_total", "info": "_info"}.get(kind, "")
    return name if name.endswith(suffix) else name + suffix
