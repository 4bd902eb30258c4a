"""The boards, in the order in which a viewer finds them.

`fleet`, `model`, `replica` and `health` are boards; the other modules are panels that they share. Another
board is a module like these, a place in BOARDS, and `python -m pipeline.generated`.
"""

from __future__ import annotations

from pipeline.dashboards.boards import fleet, health, model, replica
from pipeline.dashboards.panel import Board

BOARDS: tuple[Board, ...] = (fleet.BOARD, model.BOARD, replica.BOARD, health.BOARD)
