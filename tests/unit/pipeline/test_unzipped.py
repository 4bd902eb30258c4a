"""Files that are unpacked while they are read are closed with their contents."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from pipeline.unzipped import unzipped


@pytest.mark.parametrize("packed", [bytes, gzip.compress, zstandard.compress])
def test_a_file_is_closed_with_its_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(packed(b"content" * 99))
    opened: list[Any] = []
    really = Path.open

    def noted(self: Path, *arguments: Any) -> Any:
        opened.append(really(self, *arguments))
        return opened[-1]

    monkeypatch.setattr(Path, "open", noted)
    with unzipped(path) as file:
        assert file.read() == b"content" * 99
        assert not opened[0].closed
    assert [each.closed for each in opened] == [True]
