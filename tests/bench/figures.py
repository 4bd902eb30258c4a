"""Figures of a benchmark run: printed as they come, written to build/bench.json at the end."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str


@dataclass
class Figures:
    """Collects figures in the order they are measured."""

    rows: list[Figure] = field(default_factory=list)

    def add(self, name: str, value: float, unit: str) -> None:
        self.rows.append(Figure(name, round(value, 3), unit))
        print(f"  {name:<58} {value:>14,.2f} {unit}", flush=True)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([asdict(row) for row in self.rows], indent=1) + "\n")


def machine() -> str:
    """Return one line about what this ran on."""
    model = "unknown CPU"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    return f"{model}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
