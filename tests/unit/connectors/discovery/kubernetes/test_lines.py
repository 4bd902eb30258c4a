from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.discovery.kubernetes.lines import Lines, LineTooLong


@given(st.lists(st.sampled_from([b"", b"{}", b"ab c", b"x" * 30]), max_size=6), st.data())
def test_lines_are_the_same_however_the_bytes_come(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cutter, found = Lines(100), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += cutter.fed(stream[:size])
        stream = stream[size:]
    assert found == [line for line in lines if line]


def test_a_line_is_bounded_whether_it_has_ended_or_not() -> None:
    with pytest.raises(LineTooLong):
        Lines(10).fed(b"x" * 11)
    with pytest.raises(LineTooLong):
        Lines(10).fed(b"x" * 11 + b"\n")
    cutter = Lines(10)
    assert cutter.fed(b"x" * 10) == []
    with pytest.raises(LineTooLong):
        cutter.fed(b"y")
