from __future__ import annotations

from connectors.process.limited_log import LOG_KEYS, LOG_SECONDS, LogLimiter


def test_a_line_comes_once_in_a_while_and_says_how_many_were_left_out() -> None:
    now = 0.0
    limiter = LogLimiter(lambda: now)
    assert limiter.admit("gap", "a") == {}
    assert limiter.admit("gap", "a") is None
    assert limiter.admit("gap", "a") is None
    assert limiter.admit("gap", "b") == {}
    now = LOG_SECONDS
    assert limiter.admit("gap", "a") == {"suppressed": 2}
    assert limiter.admit("gap", "a") is None


def test_what_is_remembered_is_bounded() -> None:
    limiter = LogLimiter(lambda: 0.0)
    for number in range(LOG_KEYS):
        assert limiter.admit("gap", str(number)) == {}
    assert limiter.admit("gap", "0") is None
    assert limiter.admit("gap", "another") == {}
    assert limiter.admit("gap", "0") == {}
