"""The boards, in the order in which a viewer finds them."""

from __future__ import annotations

from pipeline.dashboards.boards import fleet, health, model, replica
from pipeline.dashboards.panel import Board

BOARDS: tuple[Board, ...] = (fleet.BOARD, model.BOARD, replica.BOARD, health.BOARD)
