"""Tables of a test's own."""

from __future__ import annotations

from tests.support.inputs.tables import empty_tables, own

__all__ = ["empty_tables", "own"]
