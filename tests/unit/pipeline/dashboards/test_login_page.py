"""Files of the page are read as what they are, whatever the locale of the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.dashboards.page import server


def test_the_page_that_asks_for_a_login_is_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    encodings: list[str | None] = []

    def read_text(path: Path, encoding: str | None = None) -> str:
        encodings.append(encoding)
        return path.read_bytes().decode("utf-8")

    monkeypatch.setattr(Path, "read_text", read_text)
    assert "This is not the token." in (server._login_page("This is not the token.").text or "")
    assert encodings == ["utf-8"]
