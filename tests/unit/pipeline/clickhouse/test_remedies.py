"""What is said of an error is a remedy for it, and not for another."""

from __future__ import annotations

import pytest

from pipeline.clickhouse.remedies import broken_part, remedy
from schemas.settings import ClickHouse

ALONE = ClickHouse()
BROKEN = (
    "Code: 33. DB::Exception: Cannot read all data. Bytes read: 5. Bytes expected: 78: While reading or "
    "decompressing /d/store/b98/x/all_1_1_0/b.bin: (while reading column b): (while reading from part "
    "/d/store/b98/x/all_1_1_0/ in table kvlens.stream_health_10s (b989) located on disk default)"
)


@pytest.mark.parametrize(
    ("code", "text", "says"),
    [
        (None, "no connection (Connection refused)", "check clickhouse.url and that it runs"),
        (60, "Unknown table", "kvlens migrate"),
        (81, "Unknown database", "kvlens migrate"),
        (46, "Unknown table function flow", "kvlens migrate"),
        (47, "Unknown identifier", "kvlens migrate"),
        (516, "Authentication failed", "password"),
        (497, "Not enough privileges", "rights"),
        (33, BROKEN, "part all_1_1_0 of kvlens.stream_health_10s cannot be read: restart"),
        (243, "Cannot reserve 1 MiB, not enough space", "make room"),
        (75, "Cannot write to file: No space left on device", "make room"),
        (252, "Too many parts", "overloaded"),
        (242, "Table is in readonly mode", "Keeper"),
        (33, "Cannot read all data of the request", "own log"),
        (279, "All connection tries failed", "own log"),
        (10**6, "something new", "own log"),
    ],
)
def test_each_error_has_its_own(code: int | None, text: str, says: str) -> None:
    found = remedy(code, text, ALONE)
    assert says in found
    assert ("rights" in found) == (code in (497, 516))


def test_a_shard_is_named_only_of_a_cluster() -> None:
    assert "a shard of cluster c does not answer" in remedy(279, "", ClickHouse(cluster="c"))


@pytest.mark.parametrize("code", [241, 159, 394, 62, None])
def test_what_ends_a_reading_of_a_whole_part_is_no_broken_part(code: int | None) -> None:
    assert broken_part(code, BROKEN) is None
    assert broken_part(33, BROKEN) == "kvlens.stream_health_10s all_1_1_0"
