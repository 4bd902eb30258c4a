"""Records a demo in a terminal and draws it as the moving picture of the README: `make cast`.

Of five minutes it shows a screen for every twenty seconds, each for a second, and when it was.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from codecs import getincrementaldecoder
from collections.abc import Sequence
from html import escape
from pathlib import Path

from pipeline.local.demo.story import STORY

PICTURE = Path("docs/images/demo.svg")
MAX_BYTES = 300_000
COLUMNS, LINES = 100, 28
RUN_SECONDS = int(STORY[-1].seconds) + 45
"""What comes of the story's last chapter is to be seen."""
EVERY_SECONDS = 20
FRAME_SECONDS = 1
CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.4, 18, 14
CLEAR = "\x1b[H\x1b[J"
STYLE = """
rect { fill: #16191d; stroke: #59636e; }
text { fill: #dfe3e8; font: 14px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.head { fill: #8fc1ff; }
"""

Frame = tuple[float, list[str]]
"""Seconds since the first screen, and the lines of the terminal."""


def record(directory: Path) -> list[tuple[float, str]]:
    """Run a demo with its data below `directory`; return (seconds since its start, what it wrote)."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("KVLENS_") and name not in ("COLUMNS", "LINES")
    }
    # It runs elsewhere, so that the data directory has the name that `make demo` shows.
    environment |= {"TERM": "xterm-256color", "PYTHONPATH": os.getcwd()}
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    command = [sys.executable, "-m", "pipeline.cli.main", "demo", "--seconds", str(RUN_SECONDS)]
    recording: list[tuple[float, str]] = []
    decoder = getincrementaldecoder("utf-8")()
    begun = time.monotonic()
    with subprocess.Popen(command, cwd=directory, env=environment, stdin=its, stdout=its, stderr=its) as demo:
        os.close(its)
        while written := _read(ours):
            recording.append((time.monotonic() - begun, decoder.decode(written)))
    os.close(ours)
    if demo.returncode:
        raise SystemExit("".join(text for _, text in recording[-5:]))
    return recording


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # so Linux says that nobody writes any more
        return b""


def screens(recording: Sequence[tuple[float, str]]) -> list[Frame]:
    """Return what stood on the terminal after each time that the demo cleared it and drew anew.

    A full emulator is not needed: the demo clears the whole and writes plain lines. Other codes are refused.
    """
    drawn: list[tuple[float, str]] = []
    for seconds, text in recording:
        before, *after = text.split(CLEAR)
        if drawn:
            drawn[-1] = (drawn[-1][0], drawn[-1][1] + before)
        drawn += [(seconds, each) for each in after]
    if not drawn:
        raise SystemExit("the demo drew no screen")
    frames = []
    for seconds, whole in drawn:
        # Behind a screen come lines of its story, which the next one has too, and those of the demo's end.
        text = whole.partition("\r\x1b[K")[0]
        if "\x1b" in text:
            raise SystemExit(f"a code that this does not draw: {text!r}")
        lines = [
            line[at : at + COLUMNS] for line in text.splitlines() for at in range(0, len(line) or 1, COLUMNS)
        ]
        frames.append((seconds - drawn[0][0], lines))
    return frames


def chosen(frames: Sequence[Frame]) -> list[Frame]:
    """Return the newest frame at each multiple of EVERY_SECONDS."""
    last = frames[-1][0]
    moments = range(0, int(last) + 1, EVERY_SECONDS)
    return [[frame for frame in frames if frame[0] <= moment][-1] for moment in moments]


def svg(frames: Sequence[Frame]) -> str:
    """Return a picture that shows the frames in turn without end; the last one where nothing may move."""
    rows = 2 + max(len(lines) for _, lines in frames)
    width, height = round(COLUMNS * CELL_WIDTH + 2 * MARGIN), rows * CELL_HEIGHT + 2 * MARGIN
    total = len(frames) * FRAME_SECONDS
    share = f"{100 / len(frames):.4f}%"
    style = (
        f"{STYLE}.f {{ visibility: hidden; animation: show {total}s step-end infinite; }}\n"
        f"@keyframes show {{ 0% {{ visibility: visible; }} {share} {{ visibility: hidden; }} }}\n"
        "@media (prefers-reduced-motion: reduce) { .f { animation: none; } "
        ".f:last-child { visibility: visible; } }\n"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">',
        f"<title>kvlens demo in a terminal</title><style>{style}</style>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
    ]
    for number, (seconds, lines) in enumerate(frames):
        # Begun so long ago that its turn comes after those before it.
        parts.append(f'<g class="f" style="animation-delay:{number * FRAME_SECONDS - total}s">')
        clock = f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
        parts += _texts(0, f"$ make demo{clock:>{COLUMNS - 11}}", ' class="head"')
        for row, line in enumerate(lines, 2):
            parts += _texts(row, line)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>\n"])


def _texts(row: int, line: str, attributes: str = "") -> list[str]:
    """Return the parts of a line between wide gaps, each in its columns whatever the font."""
    y = MARGIN + CELL_HEIGHT * row + 13
    return [
        f'<text x="{MARGIN + part.start() * CELL_WIDTH:.1f}" y="{y}" '
        f'textLength="{len(part[0]) * CELL_WIDTH:.1f}"{attributes}>{escape(part[0], quote=False)}</text>'
        for part in re.finditer(r"\S+(?: \S+)*", line)
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        picture = svg(chosen(screens(record(Path(directory)))))
        private = [directory, os.getcwd(), sys.prefix, str(Path.home()), socket.gethostname()]
    if told := [each for each in private if each in picture]:
        raise SystemExit(f"the picture says {told}, which is this machine's alone")
    if len(picture.encode()) > MAX_BYTES:
        raise SystemExit(f"{len(picture.encode())} bytes are more than {MAX_BYTES}")
    PICTURE.write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
