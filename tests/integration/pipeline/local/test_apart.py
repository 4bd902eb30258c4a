"""The demo and what `kvlens up` runs have data of their own, and neither shows the other's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click
import clickhouse_connect
import pytest

from pipeline.cli.commands.demo import demo
from pipeline.cli.commands.up import up
from pipeline.cli.options import load_running, load_settings
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.local.directory import DataDirectory
from pipeline.local.processes.supervisor import Supervisor
from pipeline.local.run_file import write_run_file
from pipeline.local.stack import Stack
from tests.support.processes import kvlens


@dataclass
class Installation:
    directory: Path
    broker: EmbeddedBroker
    store: EmbeddedStore
    engine: str


class Unseen:
    """Steps that nobody looks at."""

    def step(self, text: str) -> None: ...

    def tell(self, line: str) -> None: ...


def default_directory(command: click.Command) -> Path:
    (option,) = (parameter for parameter in command.params if parameter.name == "data_dir")
    assert isinstance(option.default, Path)
    return option.default


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Installation, Installation]]:
    """The parts of both in one working directory at the same time, none of them started."""
    monkeypatch.chdir(tmp_path)
    made = []
    with ExitStack() as owned:
        for command, engine in ((demo, "vllm-0.24-small"), (up, "mine")):
            directory = owned.enter_context(DataDirectory(default_directory(command)))
            supervisor = Supervisor(print)
            owned.callback(supervisor.stop)
            config = directory.path / "engines.toml"
            config.write_text(
                f'[[replicas]]\nid = "{engine}"\nmodel = "m"\nendpoint = "tcp://127.0.0.1:5557"\n'
            )
            stack = Stack(load_settings(config), config, directory, supervisor, Unseen())
            broker, store = stack._broker(), stack._store()
            assert broker is not None
            assert store is not None
            write_run_file(directory.path, config, stack._environment)
            made.append(Installation(directory.path, broker, store, engine))
        yield made[0], made[1]


def test_neither_lies_in_the_other_nor_listens_where_the_other_does(
    both: tuple[Installation, Installation],
) -> None:
    for one, other in (both, both[::-1]):
        own = {one.directory, one.broker.directory, one.store.directory, one.broker.log, one.store.log}
        assert all(path.is_relative_to(one.directory) for path in own)
        assert not any(path.is_relative_to(other.directory) for path in own)
    ports = [part.port for one in both for part in (one.broker, one.store)]
    assert len(set(ports)) == 4


def test_commands_that_look_at_one_see_its_engines_and_addresses(
    both: tuple[Installation, Installation],
) -> None:
    for one in both:
        settings = load_running(None, one.directory).settings
        assert settings.kafka.bootstrap_servers == one.broker.bootstrap_servers
        assert settings.clickhouse.url == one.store.url
        assert [replica.id for replica in settings.replicas] == [one.engine]


def test_what_one_store_has_the_other_has_not(both: tuple[Installation, Installation]) -> None:
    with ExitStack() as running:
        for one in both:
            one.store.launch()
            running.callback(one.store.kill)
        for one in both:
            one.store.wait_ready()
        clients = [clickhouse_connect.get_client(dsn=one.store.url) for one in both]
        clients[0].command("CREATE DATABASE kvlens")
        assert [client.query("SHOW DATABASES LIKE 'kvlens'").row_count for client in clients] == [1, 0]
        for client in clients:
            client.close()


@pytest.mark.parametrize(
    ("variable", "value", "own"),
    [
        ("KVLENS_KAFKA__BOOTSTRAP_SERVERS", "kafka.example:9092", "Kafka"),
        pytest.param(
            "KVLENS_CLICKHOUSE__URL", "http://clickhouse.example:8123", "ClickHouse", marks=pytest.mark.night
        ),
        pytest.param(
            "KVLENS_REPLICAS",
            '[{"id": "a", "model": "m", "endpoint": "tcp://127.0.0.1:9"}]',
            "engines",
            marks=pytest.mark.night,
        ),
        pytest.param(
            "KVLENS_DISCOVERY__DNS",
            '[{"name": "engines.example", "model": "m", "port": 5557}]',
            "engines",
            marks=pytest.mark.night,
        ),
        pytest.param(
            "KVLENS_DISCOVERY__KUBERNETES",
            '[{"preset": "llm-d", "model": "m"}]',
            "engines",
            marks=pytest.mark.night,
        ),
    ],
)
def test_the_demo_never_writes_into_an_installation_that_variables_name(
    tmp_path: Path, variable: str, value: str, own: str
) -> None:
    code, output, errors = kvlens("demo", "--seconds", "1", cwd=tmp_path, **{variable: value})
    assert (code, errors) == (2, f"kvlens: {variable}: the demo brings its own {own}; unset it\n")
    assert "starting" not in output
