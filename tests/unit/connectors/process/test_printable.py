"""Names of others move no cursor, break no line and turn no reading direction."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from connectors.process.addresses import printable
from tests.support.suite.night import first_by_day

HARMFUL = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def test_ordinary_names_stay_as_they_are() -> None:
    for name in ("vllm-0", "мойка", "模型", "a b", "über/qwen3:32b@x", ""):
        assert printable(name) is name


@pytest.mark.parametrize(
    "codes", first_by_day([range(0x3000), range(0x3000, sys.maxunicode + 1)]), ids=["first", "others"]
)
def test_nothing_that_a_terminal_acts_on_stays(codes: range) -> None:
    for code in codes:
        shown = printable(f"a{chr(code)}b")
        assert all(unicodedata.category(each) not in HARMFUL for each in shown), hex(code)
        assert shown.startswith("a")
        assert shown.endswith("b")


def test_what_stood_there_can_be_read() -> None:
    assert printable("x\x1b[31m\ny\u202e\u2028\x9b\udcff") == "x\\x1b[31m\\ny\\u202e\\u2028\\x9b\\udcff"
