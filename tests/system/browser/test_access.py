"""The page without a mouse and without eyes: order of the keys, visible focus, names, contrast."""

from __future__ import annotations

import re

import pytest

from pipeline.dashboards.boards import BOARDS
from tests.support.inputs.board_rows import HOUR
from tests.system.browser.tabs import Open, Served

pytestmark = pytest.mark.night

RANGE = f"from={int(HOUR.timestamp())}&to={int(HOUR.timestamp()) + 3599}&refresh=0"
FOCUSED = """() => { const at = document.activeElement, style = getComputedStyle(at);
    return [at.id || at.textContent.trim(), style.outlineStyle, parseFloat(style.outlineWidth)]; }"""
LEAST_CONTRAST = 4.5
"""WCAG 2.2, success criterion 1.4.3, for text of ordinary size."""


def test_the_keys_go_through_the_page_in_the_order_of_reading(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=model&{RANGE}")
    passed = []
    for _ in range(14):
        tab.page.keyboard.press("Tab")
        name, style, width = tab.page.evaluate(FOCUSED)
        assert style != "none", name
        assert width >= 2, name
        passed.append(name)
    assert passed == [
        *("Skip to the board", "kvlens", *(board.title for board in BOARDS)),
        *("model", "role", "replica", "range", "span", "now", "display", "?"),
    ]
    tab.page.keyboard.press("Enter")
    assert tab.page.locator("#model-fills details[open] p").is_visible()


def test_the_first_key_leads_past_the_head(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=fleet&{RANGE}")
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Enter")
    assert tab.page.evaluate("document.activeElement.id") == "board"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_from_its_ground(served: Served, visit: Open, dark: bool) -> None:
    tab = visit(served.origin, dark=dark)
    tab.open(f"board=health&{RANGE}")
    colours = tab.page.evaluate(
        """() => { const style = getComputedStyle(document.documentElement);
        return Object.fromEntries(["card", "ground", "text", "soft", "accent", "good", "warn", "bad"]
        .map((name) => [name, style.getPropertyValue("--" + name).trim()])); }"""
    )
    for ground in ("card", "ground"):
        for name in ("text", "soft", "accent", "good", "warn", "bad"):
            assert contrast(colours[name], colours[ground]) >= LEAST_CONTRAST, (name, ground)


def contrast(one: str, other: str) -> float:
    """WCAG 2.2's ratio of two colours of the form #rgb or #rrggbb."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    digits = colour.removeprefix("#")
    parts = re.findall("..", digits if len(digits) == 6 else "".join(2 * digit for digit in digits))
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (int(part, 16) / 255 for part in parts)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
