"""Rows of a fleet with more models and replicas than a chart has places for, and with many restarts."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from schemas.rows import FlowRow, Row, SourceRow, StreamHealthRow
from schemas.setting_rows import ModelRow, PrefixNameRow
from tests.support.inputs.board_rows import HOUR, WINDOWS, hour_of_rows, window_rows

DAY = HOUR - timedelta(days=1)
"""Start of the ten minutes in which the crowd has rows."""
SECONDS = 600
START, END = int(DAY.timestamp()), int(DAY.timestamp()) + SECONDS - 1
RANGE = f"from={START}&to={END}&refresh=0"
MODELS = 12
REPLICAS = 64
RESTARTS = 25
"""Points of time at which a replica restarts: a mark each."""
KV_BYTES = 131_072


def name(number: int) -> str:
    return f"replica-{number:03d}"


def model(number: int) -> str:
    return f"model-{number % MODELS:02d}"


def rows() -> list[Row]:
    """Return the rows of ten minutes; all replicas fill the same."""
    found: list[Row] = []
    for window in range(SECONDS // 10):
        for number in range(REPLICAS):
            for row in window_rows(window, name(number)):
                moved = msgspec.structs.replace(
                    row, model=model(number), window=row.window - timedelta(days=1)
                )
                if isinstance(moved, StreamHealthRow):
                    moved = msgspec.structs.replace(moved, restarts=int(number == 0 and window < RESTARTS))
                if isinstance(moved, FlowRow):
                    moved = msgspec.structs.replace(moved, evicted_tokens=320 + number, cleared_blocks=0)
                found.append(moved)
    found += [
        SourceRow(
            *(model(number), name(number), 0, 7, DAY, None, "", "vllm", "map", "d", "default", "", 0, 60, []),
            *("complete", DAY, 1),
        )
        for number in range(REPLICAS)
    ]
    found += [ModelRow(model(number), KV_BYTES, 1) for number in range(MODELS)]
    return found


def ordinary() -> list[Row]:
    """Return an hour of rows of two replicas, whose hot prefix has a name."""
    assert WINDOWS == 360
    return [*hour_of_rows(), PrefixNameRow(f"{0xABC:016x}", "support bot", 1)]
