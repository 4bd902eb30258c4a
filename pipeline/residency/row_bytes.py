"""Structured rows copied as bytes: numpy itself compares the fields of all arrays and moves each field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[Any]


def copied(rows: Rows) -> Rows:
    """Return a copy of rows that are contiguous."""
    copy: Rows = rows.view(np.uint8).copy().view(rows.dtype)
    return copy


def concatenated(parts: Sequence[Rows]) -> Rows:
    """Return contiguous rows of one type, at least one part, as one array."""
    rows: Rows = np.concatenate([part.view(np.uint8) for part in parts]).view(parts[0].dtype)
    return rows
