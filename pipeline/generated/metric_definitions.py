"""Metrics as the telemetry modules define them, read from their source.

Reading instead of importing keeps the pipeline free of the connectors.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

KINDS = {
    **{name: name.lower() for name in ("Counter", "Gauge", "Histogram")},
    **{f"{name}MetricFamily": name.lower() for name in ("Counter", "Gauge", "Histogram")},
}
"""Class of prometheus_client -> type in the exposition format."""
PREFIX = "kvlens_"


@dataclass(frozen=True)
class Metric:
    """One metric, named as it is exposed."""

    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...]


def metrics_in(source: str) -> list[Metric]:
    """Return the metrics that a module defines, by name.

    A metric is constructed with its name and meaning written out, or with a name that a table of meanings
    (`{name: meaning}`) explains.
    """
    tree = ast.parse(source)
    values = _assigned(tree)
    metrics = {metric.name: metric for metric in _of_tables(values)}
    for call, kind, in_scope in _constructions(tree, values):
        metrics |= {metric.name: metric for metric in _constructed(call, kind, in_scope, metrics)}
    return [metrics[name] for name in sorted(metrics)]


def _of_tables(values: dict[str, ast.expr]) -> Iterator[Metric]:
    for value in values.values():
        table = _literal(value)
        if isinstance(table, dict) and all(_is_meaning(name, meaning) for name, meaning in table.items()):
            for name, meaning in table.items():
                yield Metric(name, "counter" if name.endswith("_total") else "gauge", meaning, ())


def _is_meaning(name: object, meaning: object) -> bool:
    return str(name).startswith(PREFIX) and " " in str(meaning)


def _constructions(
    node: ast.AST, values: dict[str, ast.expr]
) -> Iterator[tuple[ast.Call, str, dict[str, ast.expr]]]:
    """Yield the calls that construct metrics, their type, and what names stand for there."""
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in KINDS:
            yield node, KINDS[name], values
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(id=key), *_]), iter=ast.Call(func=ast.Attribute(value=table))
        ):
            values = {**values, key: table}
    for child in ast.iter_child_nodes(node):
        yield from _constructions(child, values)


def _constructed(
    call: ast.Call, kind: str, values: dict[str, ast.expr], known: dict[str, Metric]
) -> Iterator[Metric]:
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    given = call.args[2] if len(call.args) > 2 else keywords.get("labels", keywords.get("labelnames"))
    labels = _texts(given, values) if given is not None else ()
    meaning = _literal(call.args[1])
    for name in _texts(call.args[0], values):
        exposed = f"{name}_total" if kind == "counter" and not name.endswith("_total") else name
        yield Metric(exposed, kind, str(meaning) if meaning else known[exposed].meaning, labels)


def _assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """Return {name: value} of all assignments of the module."""
    values: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                values[name] = value
    return values


def _texts(node: ast.expr, values: dict[str, ast.expr]) -> tuple[str, ...]:
    """Return the text or the texts that an expression stands for; of a table its keys; else nothing."""
    while isinstance(node, ast.Name) and node.id in values:
        node = values[node.id]
    value = _literal(node)
    if isinstance(value, str):
        return (value,)
    return tuple(map(str, value)) if isinstance(value, (tuple, list, dict)) else ()


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
