"""A hang ends its process: no fixture, no call and no teardown may take longer than `faulthandler_timeout`.

pytest counts from the beginning of a test, so that the first one of a process would pay for the broker and
the store that all share. On a machine with more to do than a run brings itself, the time is longer as
everything is.
"""

from __future__ import annotations

import faulthandler
import os

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key, get_timeout_config_value

OWN_LOAD = 2.0
"""Processes that want to run for each processor, in a run with nothing beside it (four workers on two)."""


def allowed(seconds: float, load: float, processors: int) -> float:
    """Return how long a step may take, given how many processes want to run (getloadavg(3))."""
    return seconds * max(1.0, load / (OWN_LOAD * processors))


class Hangs:
    """A plugin that winds the clock up at each step of a test; pytest stops it after the test."""

    def _begin(self, config: pytest.Config) -> None:
        if seconds := get_timeout_config_value(config):
            stderr = config.stash[fault_handler_stderr_fd_key]
            seconds = allowed(seconds, os.getloadavg()[0], os.cpu_count() or 1)
            faulthandler.dump_traceback_later(seconds, file=stderr, exit=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, request: pytest.FixtureRequest) -> None:
        self._begin(request.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self._begin(item.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        self._begin(item.config)
