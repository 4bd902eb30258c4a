"""How Grafana writes a figure of a unit.

Rules as written in grafana/grafana, `packages/grafana-data/src/valueFormats`: `valueFormats.ts` (`toFixed`,
`scaledUnits`, `simpleCountUnit`, `getValueFormat`), `categories.ts` (`short`), `symbolFormatters.ts`
(`SIPrefix` as in the snapshot 0097e4c7, `binaryPrefix`), `dateTimeFormatters.ts` (`toSeconds`) and
`src/field/displayProcessor.ts`, which strips zeros; as stored in November 2026.
"""

from __future__ import annotations

import math

_COUNT = ("", "K", "M", "B", "T")
_SHORT = ("", " K", " Mil", " Bil", " Tri", " Quadr", " Quint", " Sext", " Sept")
_BINARY = tuple(f" {prefix}B" for prefix in ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"))
_SI = ("f", "p", "n", "µ", "m", "c", "d", "", "da", "h", "k", "M", "G", "T", "P", "E", "Z", "Y")
_SECONDS = (
    (1e-6, 1e-9, " ns"),
    (1e-3, 1e-6, " µs"),
    (1, 1e-3, " ms"),
    (60, 1, " s"),
    (3600, 60, " min"),
    (86400, 3600, " hour"),
    (604800, 86400, " day"),
    (31536000, 604800, " week"),
    (math.inf, 31557600, " year"),
)


def written(value: float, unit: str) -> str:
    """Return the text of a figure in one of the units that the boards use, or used."""
    if unit in ("none", "string"):
        return _fixed(value)
    if unit == "short":
        return _scaled(value, 1000, _SHORT)
    if unit == "bytes":
        return _scaled(value, 1024, _BINARY)
    if unit == "percentunit":
        return f"{_fixed(100 * value)}%"
    if unit == "s":
        return _seconds(value)
    prefix, _, name = unit.partition(":")
    if prefix == "count":
        return f"{_scaled(value, 1000, _COUNT)} {name}"
    if prefix == "si":
        return _scaled(value, 1000, tuple(f" {each}{name}" for each in _SI), _SI.index(""))
    if prefix == "suffix":
        return f"{_fixed(value)} {name}"
    raise ValueError(unit)


def _scaled(value: float, factor: int, names: tuple[str, ...], zero: int = 0) -> str:
    if value == 0:
        return f"0{names[zero]}"
    power = math.floor(math.log10(abs(value)) / math.log10(factor))
    power = min(max(power, -zero), len(names) - zero - 1)
    return f"{_fixed(value / factor**power)}{names[zero + power]}"


def _seconds(value: float) -> str:
    if value == 0:
        return "0 s"
    divisor, name = next((each, name) for below, each, name in _SECONDS if abs(value) < below)
    return f"{_fixed(value / divisor)}{name}"


def _fixed(value: float) -> str:
    """Return a figure with three digits, or all before the point, and without zeros at the end."""
    decimals = 0 if value % 1 == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
    # JavaScript rounds halves up.
    rounded = math.floor(value * 10**decimals + 0.5) / 10**decimals
    return str(int(rounded)) if rounded % 1 == 0 else repr(rounded)
