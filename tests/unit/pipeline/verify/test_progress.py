"""The line that says how far a comparison is."""

from __future__ import annotations

import io

from pipeline.verify.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(out: io.StringIO) -> str:
    now = 0.0
    progress = Progress(out, clock=lambda: now)
    progress.partition("events", 2, 8)
    for _ in range(3000):
        now += 0.001
        progress.record()
    progress.end()
    return out.getvalue()


def test_a_terminal_shows_partition_and_speed_in_one_line() -> None:
    shown = run(Terminal()).split("\r\x1b[K")
    assert shown[1] == "reading events, partition 3 of 8 (0 records, 0 records/s)"
    assert shown[-2].startswith("reading events, partition 3 of 8 (2,")
    assert shown[-2].endswith(" records, 1,000 records/s)")
    assert shown[-1] == ""
    assert 10 < len(shown) < 20
    assert "\n" not in "".join(shown)


def test_elsewhere_nothing_is_written() -> None:
    assert run(io.StringIO()) == ""
