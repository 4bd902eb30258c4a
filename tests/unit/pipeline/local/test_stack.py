"""Addresses of servers are such that a browser can open them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pipeline.local.directory import DataDirectory
from pipeline.local.stack import Stack
from pipeline.settings.loading import load


def test_an_ipv6_host_stands_in_brackets(tmp_path: Path) -> None:
    loaded = load(None, "", {"KVLENS_PAGE__HOST": "::1"}, lambda _: "")
    supervisor: Any = SimpleNamespace(
        ports=SimpleNamespace(preferred=lambda port: port), launch=lambda *_: None
    )
    steps: Any = None
    stack = Stack(loaded, None, DataDirectory(tmp_path), supervisor, steps)
    stack._launch_server("page", "serve", "livez")
    assert stack.urls["page"] == "http://[::1]:8080/"
