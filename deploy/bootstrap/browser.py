"""See to a Chromium for the tests of the page: one that is there, the distribution's, or Playwright's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VARIABLE = "KVLENS_CHROMIUM"
INSTALL_SECONDS = 900
ADVICE = f"no Chromium and none could be installed: install the package chromium, or set {VARIABLE} to one"


def found() -> str | None:
    """Return the path of a Chromium, None when there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        return named if os.access(named, os.X_OK) else None
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    return _of_playwright()


def _of_playwright() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def _installed(commands: list[list[str]]) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in commands:
        try:
            ended = subprocess.run(
                command, env=environment, timeout=INSTALL_SECONDS, stdout=subprocess.DEVNULL, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        if ended.returncode:
            return False
    return True


def main() -> int:
    """Install what is missing; 1 with one line of advice when that is not possible."""
    if found():
        return 0
    sys.stderr.write("getting a Chromium for the tests of the page\n")
    if os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
        if _installed([["apt-get", "update", "-qq"], install]) and found():
            return 0
    if _installed([[sys.executable, "-m", "playwright", "install", "chromium"]]) and found():
        return 0
    sys.stderr.write(f"{ADVICE}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
