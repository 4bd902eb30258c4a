"""Files of the checkout that belong to no package, loaded as modules."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def module_of(path: Path) -> Any:
    """Return the module that a file is, run anew."""
    spec = importlib.util.spec_from_file_location(f"kvlens_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
