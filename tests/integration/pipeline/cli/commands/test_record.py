"""`kvlens record`: what it says when there was nothing to record."""

from __future__ import annotations

from pathlib import Path

from pipeline.recordings.format import Recording
from tests.support.processes import kvlens


def test_a_recording_of_nothing_is_a_failure_that_says_what_to_check(tmp_path: Path) -> None:
    endpoint = "tcp://127.0.0.1:1"
    code, output, errors = kvlens(
        *("record", "none.kvrec", "--endpoint", endpoint, "--seconds", "1"), cwd=tmp_path
    )
    assert (code, output) == (1, f"{endpoint}: 0 batches\n")
    assert errors.splitlines()[-1] == (
        "kvlens: no engine published anything, so none.kvrec is empty; check the endpoints, and that the "
        "engines publish events and get requests"
    )
    with Recording(tmp_path / "none.kvrec") as recording:
        assert list(recording.frames()) == []
