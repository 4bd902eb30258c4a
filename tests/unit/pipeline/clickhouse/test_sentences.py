"""Each sentence stands once, and the view that names it finds it; each kind of finding has its own."""

from __future__ import annotations

import re

import pytest

from pipeline.clickhouse.sentences import ACTIONS, ARGUMENTS, TEXTS, TITLES, Cases, expression, filled_in
from pipeline.clickhouse.sql_files import DIRECTORY, VIEWS

BRIEFING = (DIRECTORY / VIEWS / "briefing.sql").read_text("utf-8")
ALL = [*TITLES.values(), *ACTIONS.values(), *TEXTS.values()]


def words(cases: Cases) -> list[str]:
    return [cases] if isinstance(cases, str) else [text for _, text in cases]


def test_the_view_names_each_text_and_no_other() -> None:
    assert set(re.findall(r"\{say:([\w ]+)\}", BRIEFING)) == {"title", "action", *TEXTS}
    assert "{say:" not in filled_in(BRIEFING)
    with pytest.raises(KeyError):
        filled_in("SELECT {say:nothing}")


def test_each_kind_has_a_title_and_an_action() -> None:
    made = set(re.findall(r"\(\n\s*'(\w+)', ", BRIEFING)) - {"sums", "past", "answer", "finding"}
    assert set(TITLES) == set(ACTIONS) == made


def test_each_argument_is_used_and_known() -> None:
    used = {name for cases in ALL for text in words(cases) for name in re.findall(r"\{(\w+)\}", text)}
    assert used == set(ARGUMENTS)


def test_no_sentence_is_left_in_the_view() -> None:
    code = re.sub(r"--[^\n]*", "", BRIEFING)
    assert [
        text for text in re.findall(r"'((?:[^'\\]|\\.|'')*)'", code) if re.search(r"[a-z] [a-z]{2}", text)
    ] == []


@pytest.mark.parametrize("cases", [cases for cases in ALL if not isinstance(cases, str)])
def test_the_last_case_is_for_the_rest(cases: Cases) -> None:
    conditions = [condition for condition, _ in cases]
    assert conditions[-1] == ""
    assert all(conditions[:-1])


def test_a_text_is_one_expression() -> None:
    assert expression("sampled") == "concat('estimated from one block in ', toString(sampled))"
    assert expression("hits title") == "'Hit rate'"
    assert expression("hits") == (
        "multiIf(now.queried = 0, 'kvlens reads the metrics of no engine', "
        "concat('up to ', percent(now.ideal / now.queried), ' possible'))"
    )
