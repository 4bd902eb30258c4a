"""The demo's story: it fits its fleet, and is told as it happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.local.demo.fleet import GROUPS
from pipeline.local.demo.story import ON_PURPOSE, STORY, Chapter, Narrator
from pipeline.simulator.traffic.schedule import Lost, Restart, scheduled

REPLICAS = {group.name: group.replicas for group in GROUPS}


@pytest.mark.parametrize("chapter", STORY, ids=lambda chapter: f"{chapter.seconds:g}")
def test_what_is_told_names_the_replica_to_which_it_happens(chapter: Chapter) -> None:
    assert "\n" not in chapter.line
    for process in chapter.changes:
        names = REPLICAS[process]
        change = scheduled(chapter.log_line(process), len(names)).change
        if isinstance(change, Lost | Restart):
            assert names[change.replica] in chapter.line


def test_the_doctor_excuses_whose_batches_are_lost_for_good_until_it_restarts() -> None:
    lost: dict[str, float] = {}
    repaired: dict[str, float] = {}
    for chapter in STORY:
        for process in chapter.changes:
            names = REPLICAS[process]
            change = scheduled(chapter.log_line(process), len(names)).change
            if isinstance(change, Lost) and change.loss == "lose":
                lost[names[change.replica]] = chapter.seconds
            elif isinstance(change, Restart):
                repaired[names[change.replica]] = chapter.seconds
    assert ON_PURPOSE.keys() == {f"{name}/0" for name in lost}
    for name, seconds in lost.items():
        assert seconds < repaired[name]
        for at in (seconds, repaired[name]):
            assert f"{at // 60:.0f}:{at % 60:02.0f}" in ON_PURPOSE[f"{name}/0"]


def test_chapters_are_told_once_and_only_when_every_process_said_so(tmp_path: Path) -> None:
    story = (
        Chapter(0, "from the beginning"),
        Chapter(60, "rerouted", {"one": "routing=sticky", "two": "routing=random"}),
        Chapter(90, "restarted", {"one": "restart=0"}),
    )
    log = tmp_path / "one.log"
    log.write_text("60:routing=sticky\n90:restart=0\n")  # of the demo before
    narrator = Narrator(tmp_path, story)
    assert list(narrator.news()) == ["from the beginning"]
    with log.open("a") as lines:
        lines.write("ready []\n60:routing=sticky\n")
    assert list(narrator.news()) == []
    (tmp_path / "two.log").write_text("60:routing=random\n")
    assert list(narrator.news()) == ["rerouted"]
    log.write_text("90:restart=0\n")  # rotated
    assert list(narrator.news()) == ["restarted"]
    assert list(narrator.news()) == []
