"""Kinds of metrics, as the exposition format and OTLP have them."""

from __future__ import annotations

from typing import ClassVar

import msgspec


class Metric(msgspec.Struct, frozen=True):
    """One metric, named as it is exposed; labels are bounded by configuration, never by traffic."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ()

    kind: ClassVar[str]
    """Type in the exposition format."""


class Counter(Metric, frozen=True):
    """Grows from 0 while the process runs."""

    kind: ClassVar[str] = "counter"

    def __post_init__(self) -> None:
        """Raises ValueError for a name that the exposition format would change."""
        if not self.name.endswith("_total"):
            raise ValueError(f"counter {self.name} must end in _total")


class Gauge(Metric, frozen=True):
    """A value as of now."""

    kind: ClassVar[str] = "gauge"


class Figure(Gauge, frozen=True, kw_only=True):
    """A gauge of the fleet, which goes to OpenTelemetry's receivers as well."""

    unit: str
    """By UCUM, as OTLP has it: what is counted stands in braces, and "" is of a figure that is 0 or 1."""

    @property
    def otlp_name(self) -> str:
        """Its name there; the unit is no part of it."""
        name = self.name.removeprefix("kvlens_fleet_")
        for suffix in ("_per_second", "_per_hour", "_seconds"):
            name = name.removesuffix(suffix)
        return f"kvlens.fleet.{name}"

    @property
    def attributes(self) -> tuple[str, ...]:
        """What its labels are called there: by the conventions for GenAI where they name one."""
        return tuple(ATTRIBUTES.get(label, f"kvlens.{label}") for label in self.labels)


ATTRIBUTES = {"model": "gen_ai.request.model"}
"""Labels that OpenTelemetry's conventions have a name for; no metric of a KV cache has one yet."""


class Histogram(Metric, frozen=True, kw_only=True):
    """How often values fell into buckets."""

    buckets: tuple[float, ...]
    """Upper bounds, in the unit of the name."""

    kind: ClassVar[str] = "histogram"
