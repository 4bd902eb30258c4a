"""See to a Chromium for the tests of the page: one that is there, the distribution's, or Playwright's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VARIABLE = "KVLENS_CHROMIUM"
PACKAGES = ("chromium", "libatomic1")
"""Of Debian; what drives the browser links to the second."""
ADVICE = (
    f"no Chromium that can be driven: install the packages {' and '.join(PACKAGES)}, "
    f"or set {VARIABLE} to one and see that `python -m playwright --version` works"
)
INSTALL_SECONDS = 900
LOOK_SECONDS = 60


def found() -> str | None:
    """Return the path of a Chromium that can be driven, None when there is none."""
    if not _runs([sys.executable, "-m", "playwright", "--version"]):
        return None
    named = os.environ.get(VARIABLE)
    for name in [named] if named else NAMES:
        path = shutil.which(name)
        # Ubuntu's package is a script that says where else to get it.
        if path and _runs([path, "--version"]):
            return path
    return None if named else _of_playwright()


def _of_playwright() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if _runs([path, "--version"]) else None


def _runs(command: list[str]) -> bool:
    return _ended_well(command, LOOK_SECONDS, errors=subprocess.DEVNULL)


def _ended_well(command: list[str], seconds: int, *, errors: int | None = None) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        ended = subprocess.run(
            command, env=environment, timeout=seconds, stdout=subprocess.DEVNULL, stderr=errors, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


def _install() -> None:
    own = [sys.executable, "-m", "playwright", "install"]
    if os.geteuid() == 0 and shutil.which("apt-get"):
        _ended_well(["apt-get", "update", "-qq"], INSTALL_SECONDS)
        packages = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES]
        if _ended_well(packages, INSTALL_SECONDS):
            return
        own.append("--with-deps")
    _ended_well([*own, "chromium"], INSTALL_SECONDS)


def main() -> int:
    """Install what is missing; 1 with one line of advice when that is not possible."""
    if found():
        return 0
    sys.stderr.write("getting a Chromium for the tests of the page\n")
    _install()
    if found():
        return 0
    sys.stderr.write(f"{ADVICE}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
