"""Records of the package `kvlens-reader`: copies of `schemas`, so that its wheel does not need kvlens."""

from __future__ import annotations

import re
from pathlib import Path
from pprint import pformat

from pipeline.generated.figures import said_of_figures
from schemas.figures import FIGURES

DIRECTORY = "schemas/reader/kvlens_reader/records"
MODULES = (
    "choices",
    "events",
    "figures",
    "fleet_rows",
    "hashes",
    "json_form",
    "reasons",
    "residency",
    "rows",
    "setting_rows",
    "trust",
    "wire_prefix",
)
_OURS = re.compile(r"^from schemas\.", re.M)
_SCHEMAS = Path(__file__).parents[2] / "schemas"
_HEAD = "# Copied from schemas/{module}.py by `python -m pipeline.generated`.\n"


def reader_files() -> dict[str, bytes]:
    """Return {path in the checkout: content}."""
    files = {f"{DIRECTORY}/{module}.py": _copied(module) for module in MODULES}
    files[f"{DIRECTORY}/__init__.py"] = '"""Records as kvlens defines them; copies."""\n'
    files[f"{DIRECTORY}/keys.py"] = _keys()
    return {path: text.encode() for path, text in files.items()}


def _copied(module: str) -> str:
    text = (_SCHEMAS / f"{module}.py").read_text("utf-8")
    return _HEAD.format(module=module) + _OURS.sub("from kvlens_reader.records.", text)


def _keys() -> str:
    told = said_of_figures()
    keys = {kind.TABLE: tuple(told[figure.__name__]["x-key"]) for kind, figure in FIGURES.items()}  # type: ignore[attr-defined]
    return (
        '"""What names a row of each table; made of the sort keys by `python -m pipeline.generated`."""\n\n'
        f"KEYS: dict[str, tuple[str, ...]] = {pformat(keys, sort_dicts=False, width=100)}\n"
    )
