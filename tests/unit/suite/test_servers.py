"""What the processes of a run share is made once, and lent to one of them at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.suite.servers import Lent, Shared


def test_the_first_who_asks_makes_what_all_have(tmp_path: Path) -> None:
    """Each opens the file anew, so that threads wait for each other as processes do (flock(2))."""

    def made_by(number: int) -> str:
        return Shared(tmp_path).once("tables", lambda: f"made by {number}")

    with ThreadPoolExecutor(4) as asking:
        found = [*asking.map(made_by, range(8))]
    assert len({*found}) == 1


def test_what_is_lent_is_nobody_elses_meanwhile_and_used_when_it_comes_back(tmp_path: Path) -> None:
    numbers = iter("abc")
    one, other = Shared(tmp_path), Shared(tmp_path)
    with one.lent("tables", lambda: next(numbers)) as first:
        with other.lent("tables", lambda: next(numbers)) as second:
            assert (first, second) == (Lent("a", used=False), Lent("b", used=False))
        with other.lent("tables", lambda: next(numbers)) as again:
            assert again == Lent("b", used=True)
    with other.lent("tables", lambda: next(numbers)) as back:
        assert back == Lent("a", used=True)


def test_outside_of_a_parallel_run_there_is_no_server(tmp_path: Path) -> None:
    assert Shared(tmp_path).running("broker") is None
