"""What `make coverage` counts: lines of machine code that ran, and rooms."""

from __future__ import annotations

import numba

from tests.support.checkout import ROOT
from tests.support.suite.compiled_lines import CompiledLines
from tests.support.suite.reached import by_room, table


def first_below(limit: int, numbers: tuple[int, ...]) -> int:
    """Has a branch that does not run."""
    for number in numbers:
        if number < 0:
            return -1
        elif number < limit:
            found = number
            break
    else:
        found = limit
    return found


def test_only_lines_that_ran_as_machine_code_are_noted() -> None:
    lines = CompiledLines(numba.njit)
    function = lines(cache=True, nogil=True)(first_below)
    before = function.py_func.__code__.co_firstlineno
    assert lines.ran() == {__file__: []}
    assert function(3, (5, 2, 1)) == 2
    (noted,) = lines.ran().values()
    # for, if, elif, found = number, break, return found
    assert [line - before for line in noted] == [2, 3, 5, 6, 7, 10]
    assert function(1, (5, 2)) == 1
    assert before + 9 in lines.ran()[__file__]


def test_rooms_add_up_and_a_share_is_rounded_down() -> None:
    modules = {
        str(ROOT / "connectors/order/log.py"): (1_999, 1_998),
        str(ROOT / "connectors/order/run/deep.py"): (1, 1),
        str(ROOT / "schemas/events.py"): (3, 3),
        str(ROOT / "schemas/__init__.py"): (0, 0),
        str(ROOT / "pipeline/errors.py"): (2, 0),
    }
    assert table(by_room(modules).items()) == (
        "| `connectors/order` | 2,000 | 99.9 % |\n| `pipeline` | 2 | 0.0 % |\n| `schemas` | 3 | 100.0 % |\n"
    )
