"""The scripts of findings/: each is in the list, says what was guessed, and asks nothing of kvlens."""

from __future__ import annotations

import re
import stat
import subprocess

from tests.support.checkout import ROOT

FINDINGS = ROOT / "findings"
SCRIPTS = sorted(FINDINGS.glob("*.sh"))


def test_the_list_has_a_line_for_each() -> None:
    listed = re.findall(
        r"^\| \[([\w-]+)\]\(([\w-]+\.sh)\) \| .+ \|$", (FINDINGS / "README.md").read_text(), re.M
    )
    assert listed == [(script.stem, script.name) for script in SCRIPTS]
    assert len(SCRIPTS) >= 6


def test_each_is_a_script_of_its_own() -> None:
    for script in SCRIPTS:
        text = script.read_text()
        subprocess.run(["sh", "-n", script], check=True)
        assert script.stat().st_mode & stat.S_IXUSR, script
        comment = text.partition("\nset -eu\n")[0]
        assert re.search(r"^# Guess: .+^# Seen: ", comment, re.M | re.S), script
        assert "trap 'rm -rf \"$dir\"' EXIT" in text, script
        assert "kvlens" not in text, script
        assert text.rstrip().endswith('echo "as described"'), script
