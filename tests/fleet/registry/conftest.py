"""A registry for all tests of a pytest worker; each takes a prefix of topics of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fleet.registry.apicurio import Apicurio, RegistryMissing, home


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]) -> Iterator[Apicurio]:
    try:
        program = home()
    except RegistryMissing as error:
        pytest.skip(f"Apicurio Registry was not tried: {error}")
    running = Apicurio(program, tmp_path_factory.mktemp("registry"), free_port)
    running.start()
    yield running
    running.kill()
