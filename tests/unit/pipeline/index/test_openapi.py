"""The index's own description of itself."""

from __future__ import annotations

from pipeline.index.openapi import document
from pipeline.index.server import OPEN


def test_every_page_that_needs_no_token_is_described_as_such() -> None:
    paths = document()["paths"]
    for path in OPEN:
        assert paths[path]["get"]["security"] == [{}], path
