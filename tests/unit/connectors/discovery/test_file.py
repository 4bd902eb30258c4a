from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from connectors.discovery.file import FileWatch, SettingsFile, SettingsUnreadable
from connectors.discovery.static import list_sources
from connectors.process.absence import CONFIRM_SECONDS
from pipeline.settings.loading import ConfigurationError, load
from schemas.settings import Settings


def _document(*names: str, more: str = "") -> str:
    return more + "".join(
        f'[[replicas]]\nid = "{name}"\nmodel = "m"\nendpoint = "tcp://{name}:5557"\n' for name in names
    )


def _settings(document: str) -> Settings:
    try:
        return load(document, "kvlens.toml", {}, lambda name: "").settings
    except ConfigurationError as error:
        raise SettingsUnreadable(str(error)) from error


class Told:
    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.restarts = 0
        self.doubts: list[tuple[str, int, int]] = []

    def absence_doubted(self, origin: str, known: int, found: int) -> None:
        self.doubts.append((origin, known, found))

    def settings_unreadable(self, reason: str) -> None:
        self.complaints.append(reason)

    def restart_needed(self, path: Path) -> None:
        self.restarts += 1


class Watched:
    """A settings file and its watch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write(_document("a"))
        self.told = Told()
        file = SettingsFile(path, lambda: _settings(path.read_text()))
        self.watch = FileWatch(file, _settings(_document("a")), self.told)

    def write(self, text: str) -> None:
        self.path.write_text(text)

    def polls(self, times: int) -> list[list[str] | None]:
        found = [self.watch.poll() for _ in range(times)]
        return [None if sources is None else [source.replica for source in sources] for sources in found]

    async def follows(self, moments: Sequence[float]) -> list[list[str]]:
        """Return the replicas that count after a poll at each of these moments."""
        found = []
        for now in moments:
            self.watch.take(self.watch.poll(), now, lambda: None)
            found.append(sorted({source.replica for source in self.watch.sources}))
        return found


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "kvlens.toml")


def test_a_change_counts_when_it_was_read_twice(watched: Watched) -> None:
    assert watched.polls(4) == [None, ["a"], None, None]
    watched.write(_document("a", "b"))
    assert watched.polls(3) == [None, ["a", "b"], None]
    assert watched.told.complaints == []
    assert watched.told.restarts == 0


def test_what_is_written_while_it_is_read_counts_when_it_was_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "kvlens.toml"
    path.write_text(_document("a", "b"))
    halves = iter([_document("a"), _document("a", "c")])

    def read() -> Settings:
        path.write_text(next(halves, path.read_text()))
        return _settings(path.read_text())

    watch = FileWatch(SettingsFile(path, read), _settings(_document("a", "b")), Told())
    found = [watch.poll() for _ in range(6)]
    assert [sources and [source.replica for source in sources] for sources in found] == [
        *[None] * 5,
        ["a", "c"],
    ]


def test_half_a_file_removes_nothing(watched: Watched) -> None:
    watched.write(_document("a", "b"))
    watched.polls(2)
    watched.write(_document("a"))  # what an editor has written so far
    assert watched.polls(1) == [None]
    watched.write(_document("a", "b", "c"))
    assert watched.polls(2) == [None, ["a", "b", "c"]]


def test_the_same_content_again_is_no_change(watched: Watched) -> None:
    watched.polls(2)
    watched.write(_document("a", "b"))
    watched.polls(1)
    watched.write(_document("a"))
    assert watched.polls(3) == [None, None, None]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("[[replicas]", "kvlens.toml: not valid TOML"),
        (_document("a") + "port = 1\n", "[[replicas]] number 1 has no key `port`"),
        (_document("a", "a"), "replica id 'a' is used twice"),
    ],
)
def test_a_wrong_file_is_told_once_and_changes_nothing(watched: Watched, document: str, words: str) -> None:
    watched.polls(2)
    watched.write(document)
    assert watched.polls(5) == [None] * 5
    (complaint,) = watched.told.complaints
    assert words in complaint
    watched.write(_document("b"))
    assert watched.polls(2) == [None, ["b"]]


def test_a_file_that_is_gone_is_told_once_and_changes_nothing(watched: Watched) -> None:
    watched.polls(2)
    os.remove(watched.path)
    assert watched.polls(4) == [None] * 4
    assert watched.told.complaints == [f"{watched.path}: cannot read it: No such file or directory"]
    watched.write(_document("a"))
    assert watched.polls(3) == [None] * 3
    os.remove(watched.path)
    watched.polls(1)
    assert len(watched.told.complaints) == 2


def test_a_file_put_in_its_place_counts(watched: Watched) -> None:
    """As a ConfigMap is changed: another file, perhaps with an older time."""
    watched.polls(2)
    other = watched.path.with_name("new")
    other.write_text(_document("x"))
    os.utime(other, (1, 1))
    os.replace(other, watched.path)
    assert watched.polls(2) == [None, ["x"]]


def test_settings_of_others_need_no_restart(watched: Watched) -> None:
    watched.polls(2)
    watched.write(_document("a", more="[worker]\ncheckpoint_seconds = 7\n"))
    assert watched.polls(2) == [None, ["a"]]
    assert watched.told.restarts == 0


OF_OTHERS = {"clickhouse", "worker", "fleet", "page", "otlp", "index", "models", "prefixes"}
"""Sections that no connector reads."""
CHANGED = {
    "kafka": 'bootstrap_servers = "other:9092"',
    "connector": "linger_seconds = 1",
    "discovery": '[[discovery.dns]]\nname = "engines"\nmodel = "m"',
    "lmcache": 'models = "m"\nport = 8096',
    "lmcache_kafka": 'bootstrap_servers = "other:9092"',
}


@pytest.mark.parametrize("section", [*CHANGED])
def test_every_section_that_a_connector_reads_needs_a_restart(watched: Watched, section: str) -> None:
    assert CHANGED.keys() | OF_OTHERS | {"replicas"} == {*Settings.__struct_fields__}
    watched.polls(2)
    watched.write(_document("a", more=f"[{section}]\n{CHANGED[section]}\n"))
    assert watched.polls(2) == [None, ["a"]]
    assert watched.told.restarts == 1


def test_sources_are_those_of_a_start_with_that_file(watched: Watched) -> None:
    watched.write(_document("p", "q"))
    watched.watch.poll()
    assert watched.watch.poll() == list_sources(_settings(_document("p", "q")).replicas)


async def test_a_file_that_is_empty_for_some_seconds_removes_nothing(watched: Watched) -> None:
    await watched.watch.begin()
    watched.write(_document("a", "b", "c"))
    assert (await watched.follows([0.0, 2.0]))[-1] == ["a", "b", "c"]
    watched.write("")
    assert await watched.follows([4.0, 6.0, 8.0, 12.0]) == [["a", "b", "c"]] * 4
    assert watched.told.doubts == [("replicas", 3, 0)]
    watched.write(_document("a", "b", "c"))
    assert (await watched.follows([14.0, 16.0, 100.0, 102.0])) == [["a", "b", "c"]] * 4


async def test_replicas_that_the_file_lacks_for_a_while_are_gone(watched: Watched) -> None:
    await watched.watch.begin()
    watched.write(_document("a", "b", "c"))
    await watched.follows([0.0, 2.0])
    watched.write(_document("a", "b", "d"))  # more than half are left: at once
    assert (await watched.follows([4.0, 6.0]))[-1] == ["a", "b", "d"]
    watched.write(_document("a", "d"))
    assert (await watched.follows([6.5, 7.0]))[-1] == ["a", "d"]
    watched.write("")
    first = 10.0
    assert (await watched.follows([8.0, first, first + CONFIRM_SECONDS - 1.0]))[-1] == ["a", "d"]
    os.remove(watched.path)  # and nobody says anything
    assert (await watched.follows([first + CONFIRM_SECONDS, first + 100.0]))[-1] == ["a", "d"]
    watched.write("")
    again = first + 200.0
    assert (await watched.follows([again, again + 1.0, again + CONFIRM_SECONDS - 1.0]))[-1] == ["a", "d"]
    assert (await watched.follows([again + CONFIRM_SECONDS + 1.0]))[-1] == []


async def test_one_replica_is_removed_at_once_and_another_name_for_an_engine_too(watched: Watched) -> None:
    await watched.watch.begin()
    watched.write(_document("a", "b"))
    await watched.follows([0.0, 2.0])
    watched.write(_document("b"))
    assert (await watched.follows([4.0, 6.0]))[-1] == ["b"]
    watched.write(_document("b").replace('id = "b"', 'id = "x"'))
    assert (await watched.follows([8.0, 10.0]))[-1] == ["x"]
    assert watched.told.doubts == []


@pytest.mark.parametrize("wrong", ["[[replicas]", _document("a", "a")])
async def test_a_file_that_stays_wrong_confirms_no_absence(watched: Watched, wrong: str) -> None:
    await watched.watch.begin()
    watched.write(_document("a", "b", "c"))
    await watched.follows([0.0, 2.0])
    watched.write("")
    await watched.follows([4.0, 6.0])
    watched.write(wrong)
    moments = [8.0, 10.0, 12.0, 6.0 + CONFIRM_SECONDS, 8.0 + CONFIRM_SECONDS]
    assert (await watched.follows(moments)) == [["a", "b", "c"]] * len(moments)
    assert len(watched.told.complaints) == 1
    watched.write("")
    assert (await watched.follows([50.0, 52.0, 49.0 + CONFIRM_SECONDS]))[-1] == ["a", "b", "c"]
    assert (await watched.follows([50.0 + CONFIRM_SECONDS]))[-1] == []


async def test_content_seen_once_confirms_no_absence_in_what_was_there_before(watched: Watched) -> None:
    await watched.watch.begin()
    watched.write(_document("a", "b", "c"))
    await watched.follows([0.0, 2.0])
    watched.write("")
    await watched.follows([4.0, 6.0])
    watched.write(_document("a", "b", "c"))
    assert await watched.follows([6.0 + CONFIRM_SECONDS]) == [["a", "b", "c"]]
    assert watched.told.doubts == [("replicas", 3, 0)]


def test_a_file_is_used_once_what_it_names_can_be_read(watched: Watched) -> None:
    """Its secrets are in other files: the content stays the same."""
    watched.polls(2)
    unreadable = True

    def read() -> Settings:
        if unreadable:
            raise SettingsUnreadable("the password's file is empty")
        return _settings(watched.path.read_text())

    watched.watch._file.read = read
    watched.write(_document("b"))
    assert watched.polls(4) == [None] * 4
    assert len(watched.told.complaints) == 1
    unreadable = False
    assert watched.polls(2) == [["b"], None]


async def test_as_many_others_do_not_make_up_for_replicas_that_are_missing(watched: Watched) -> None:
    """As in the file of another fleet."""
    await watched.watch.begin()
    watched.write(_document("a", "b", "c"))
    await watched.follows([0.0, 2.0])
    watched.write(_document("x", "y", "z"))
    both = ["a", "b", "c", "x", "y", "z"]
    assert await watched.follows([4.0, 6.0, 8.0, 5.0 + CONFIRM_SECONDS]) == [
        ["a", "b", "c"],
        both,
        both,
        both,
    ]
    assert watched.told.doubts == [("replicas", 3, 0)]
    assert await watched.follows([6.0 + CONFIRM_SECONDS]) == [["x", "y", "z"]]
