"""Expected failures: one line on stderr that says what to do, and the exit code."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.local.directory import DataDirectory
from tests.support.checkout import ROOT
from tests.support.forked import kvlens
from tests.support.processes import KVLENS, started
from tests.support.suite.night import at_night, first_by_day, night_rows


@pytest.fixture
def closed_port():
    """A port on which nothing listens: bound, so that nobody else takes it."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


NO_ENGINE = (
    "kvlens: settings: no engine to read; add [[replicas]], [[discovery.dns]], "
    "[[discovery.kubernetes]], [[discovery.bind]] or [lmcache], or set KVLENS_REPLICAS"
)
ENGINE = '[{"id": "a", "model": "m", "endpoint": "tcp://127.0.0.1:5557"}]'


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["frobnicate"], 2, "kvlens: No such command 'frobnicate'. (see `kvlens --help`)"),
        (
            ["doctr"],
            2,
            "kvlens: No such command 'doctr'. Did you mean `kvlens doctor`? (see `kvlens --help`)",
        ),
        (
            ["topics", "aply"],
            2,
            "kvlens: No such command 'aply'. Did you mean `kvlens topics apply`? "
            "(see `kvlens topics --help`)",
        ),
        (
            ["work", "--confg", "a"],
            2,
            "kvlens: No such option: --confg Did you mean --config? (see `kvlens work --help`)",
        ),
        (
            ["connect", "--log-level", "loud"],
            2,
            "kvlens: Invalid value for '--log-level' (env var: 'KVLENS_LOG_LEVEL'): 'loud' is not one of "
            "'debug', 'info', 'warning', 'error'. (see `kvlens connect --help`)",
        ),
        (["connect", "--frob"], 2, "kvlens: No such option: --frob (see `kvlens connect --help`)"),
        (
            ["config", "show", "--config", "gone.toml"],
            2,
            "kvlens: gone.toml: cannot read it: No such file or directory",
        ),
        (
            ["record", "new", "--endpoint", "10.0.0.11:5557"],
            2,
            "kvlens: Invalid value for --endpoint: expected tcp://HOST:PORT, got 10.0.0.11:5557 "
            "(see `kvlens record --help`)",
        ),
        (
            ["simulate", "--write-config", "none/simulated.toml", "--base-port", "0", "--metrics-port", "-1"],
            1,
            "kvlens: none/simulated.toml: No such file or directory",
        ),
        (["connect"], 2, NO_ENGINE),
        (["up"], 2, NO_ENGINE),
        (["demo", "--json"], 2, "kvlens: --json needs --seconds (see `kvlens demo --help`)"),
        (["analyze", "gone"], 1, "kvlens: gone: No such file or directory"),
        (["play", "gone"], 1, "kvlens: gone: No such file or directory"),
        (["analyze", "text"], 1, "kvlens: text: not a kvlens recording"),
        (
            ["play", "text", "--speed", "fast"],
            2,
            "kvlens: Invalid value for --speed: expected a number above 0, or max (see `kvlens play --help`)",
        ),
        (
            ["record", "text", "--endpoint", "tcp://127.0.0.1:5557"],
            1,
            "kvlens: text exists; a recording is never overwritten, choose another name",
        ),
        (
            ["record", "new"],
            2,
            "kvlens: no engine to record; give --endpoint, or a --config with [[replicas]] "
            "(see `kvlens record --help`)",
        ),
    ],
)
def test_mistakes_cost_one_line(tmp_path: Path, arguments: list[str], code: int, line: str):
    (tmp_path / "text").write_text("hello")
    assert kvlens(*arguments, cwd=tmp_path) == (code, "", line + "\n")


@pytest.mark.parametrize("words", first_by_day([(), ("topics",), ("config",), ("state",)], 2))
def test_a_command_without_its_subcommand_prints_the_help(tmp_path: Path, words: tuple[str, ...]):
    bare = kvlens(*words, cwd=tmp_path)
    assert bare == kvlens(*words, "--help", cwd=tmp_path)
    assert bare[0] == 0
    assert bare[1].startswith(f"Usage: {' '.join(('kvlens', *words))} [OPTIONS] COMMAND")


def test_the_version_has_two_ways_to_be_asked_for(tmp_path: Path):
    code, version, _ = kvlens("version", cwd=tmp_path)
    assert (code, kvlens("--version", cwd=tmp_path)) == (0, (0, f"kvlens {version}", ""))


def test_settings_and_their_origins_come_as_json_without_secrets(tmp_path: Path):
    (tmp_path / "kvlens.toml").write_text('[kafka]\ngroup = "here"\nsasl_password = "hidden-word"\n')
    code, output, _ = kvlens("config", "show", "--json", cwd=tmp_path, KVLENS_LOG_LEVEL="debug")
    assert code == 0
    shown = json.loads(output)
    assert shown["settings"]["kafka"]["group"] == "here"
    assert shown["settings"]["kafka"]["sasl_password"] == "********"
    assert shown["origins"] == {"kafka.group": "kvlens.toml", "kafka.sasl_password": "kvlens.toml"}


LOGIN = "somebody:hidden-word"
ADDRESSES = f"""
[clickhouse]
url = "http://127.0.0.1:1"
[kafka]
bootstrap_servers = "127.0.0.1:1"
[[replicas]]
id = "a"
model = "m"
endpoint = "tcp://127.0.0.1:5557"
metrics_url = "https://{LOGIN}@127.0.0.1:8000/metrics?key=hidden-word"
[[discovery.bind]]
endpoint = "tcp://*:6557"
metrics_url = "http://{LOGIN}@{{pod}}:8000/metrics"
"""


@pytest.mark.parametrize(
    "command",
    [
        ("config", "show"),
        *at_night([("config", "show", "--json"), ("migrate",), ("doctor",)]),
        ("doctor", "--json"),
    ],
    ids=" ".join,
)
def test_a_password_inside_an_address_is_shown_nowhere(command: tuple[str, ...], tmp_path: Path):
    (tmp_path / "kvlens.toml").write_text(ADDRESSES)
    _, output, errors = kvlens(*command, cwd=tmp_path, KVLENS_LOG_LEVEL="debug")
    assert "127.0.0.1:1" in output + errors
    assert "hidden-word" not in output + errors
    assert "somebody" not in output + errors


@pytest.mark.parametrize(
    "wrong",
    [
        f'[[replicas]]\nid = "a"\nmodel = "m"\nendpoint = "tcp://{LOGIN}@host:none"',
        f'[[discovery.bind]]\nendpoint = "tcp://*:6557"\nmetrics_url = "http://{LOGIN}@host:1/metrics"',
    ],
)
def test_a_wrong_address_is_told_without_its_password(wrong: str, tmp_path: Path):
    (tmp_path / "kvlens.toml").write_text(wrong)
    code, _, errors = kvlens("connect", cwd=tmp_path)
    assert code == 2
    assert "://********@host" in errors
    assert "hidden-word" not in errors


def test_a_data_directory_that_holds_those_of_several_commands_names_them(tmp_path: Path):
    (tmp_path / ".kvlens" / "up").mkdir(parents=True)
    (tmp_path / ".kvlens" / "up" / "running.json").write_text("{}")
    assert kvlens("doctor", "--data-dir", ".kvlens", cwd=tmp_path) == (
        1,
        "",
        "kvlens: .kvlens holds no running.json; did you mean --data-dir .kvlens/up?\n",
    )


def test_the_file_of_the_working_directory_is_read_and_one_named_by_the_environment(tmp_path: Path):
    (tmp_path / "kvlens.toml").write_text('[kafka]\ngroup = "here"\n')
    (tmp_path / "other.toml").write_text('[kafka]\ngroup = "there"\nsasl_password = "hidden-word"\n')
    code, output, _ = kvlens("config", "show", cwd=tmp_path)
    assert code == 0
    assert 'group = "here"  # kvlens.toml\n' in output
    code, output, _ = kvlens("config", "show", cwd=tmp_path, KVLENS_CONFIG="other.toml")
    assert 'group = "there"  # other.toml\n' in output
    assert "hidden-word" not in output


def test_an_unreachable_broker_and_store_are_named(tmp_path: Path, closed_port: int):
    environment = {
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{closed_port}",
        "KVLENS_CLICKHOUSE__URL": f"http://127.0.0.1:{closed_port}",
    }
    for command in (["topics", "list"], ["topics", "apply"]):
        code, _, errors = kvlens(*command, cwd=tmp_path, **environment)
        assert code == 1
        assert [line for line in errors.splitlines() if line.startswith("kvlens: ")] == errors.splitlines()[
            -1:
        ]
        assert errors.splitlines()[-1].startswith(
            f"kvlens: Kafka at 127.0.0.1:{closed_port} cannot be used: "
        )
        assert "Traceback" not in errors
    code, _, errors = kvlens("verify", cwd=tmp_path, **environment)
    assert (code, errors.count("\n")) == (2, 1)
    assert errors.startswith(f"kvlens: no Kafka broker answers at 127.0.0.1:{closed_port} (")
    code, _, errors = kvlens("migrate", cwd=tmp_path, **environment)
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith(f"kvlens: ClickHouse at http://127.0.0.1:{closed_port} cannot be used: ")


def test_a_port_in_use_is_named(tmp_path: Path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        endpoint = f"tcp://127.0.0.1:{holder.getsockname()[1]}"
        capture = ROOT / "tests" / "captures" / "vllm-0.25.1-map-dp0.frames.msgpack.gz"
        code, _, errors = kvlens("play", str(capture), "--endpoint", endpoint, cwd=tmp_path)
    assert (code, errors) == (1, f"kvlens: cannot listen on {endpoint}: Address already in use\n")


def test_a_host_that_is_none_of_this_machine_is_named(tmp_path: Path):
    capture = ROOT / "tests" / "captures" / "vllm-0.25.1-map-dp0.frames.msgpack.gz"
    code, _, errors = kvlens("play", str(capture), "--endpoint", "tcp://elsewhere:5600", cwd=tmp_path)
    assert (code, errors) == (
        1,
        "kvlens: cannot listen on tcp://elsewhere:5600: no address of this machine\n",
    )


def test_the_page_is_served_without_a_store_and_says_why_once(
    tmp_path: Path, closed_port: int, free_port: Callable[[], int]
):
    line = f"kvlens: ClickHouse at http://127.0.0.1:{closed_port} cannot be used: no connection (Connection "
    process = started(
        [*KVLENS, "serve"],
        tmp_path / "log",
        cwd=tmp_path,
        KVLENS_CLICKHOUSE__URL=f"http://127.0.0.1:{closed_port}",
        KVLENS_PAGE__PORT=str(free_port()),
        PYTHONUNBUFFERED="1",
    )
    try:
        process.wait_said(line)
        process.send(signal.SIGINT)
        assert process.process.wait(60) == 0
        assert process.said().splitlines()[0].startswith("boards are on http://127.0.0.1:")
    finally:
        process.close()


@pytest.mark.parametrize(
    ("command", "section"),
    [
        ("serve", "page"),
        *night_rows(("index", "index"), ("connect", "lmcache"), ("up", "page")),
        ("up", "index"),
        *night_rows(("up", "lmcache")),
    ],
)
def test_what_other_machines_reach_does_not_start_without_a_token_that_nobody_guesses(
    tmp_path: Path, free_port: Callable[[], int], command: str, section: str
):
    listening = {
        "KVLENS_REPLICAS": ENGINE,
        "KVLENS_LMCACHE__MODELS": "m",
        f"KVLENS_{section.upper()}__HOST": "0.0.0.0",
        f"KVLENS_{section.upper()}__PORT": str(free_port()),
    }
    code, _, errors = kvlens(command, cwd=tmp_path, **listening)
    assert code == 1
    (line,) = errors.splitlines()
    assert line.startswith(f"kvlens: {section}.host 0.0.0.0 can be reached from other machines: ")
    assert f"KVLENS_{section.upper()}__TOKEN_FILE" in line
    code, _, errors = kvlens(
        command, cwd=tmp_path, **listening, **{f"KVLENS_{section.upper()}__TOKEN": "fifteen-letters"}
    )
    assert code == 1
    (line,) = errors.splitlines()
    assert line.startswith(f"kvlens: {section}.token has fewer than 16 characters: ")
    assert "fifteen-letters" not in line
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


def test_a_directory_in_use_is_named_with_its_owner(tmp_path: Path):
    with DataDirectory(tmp_path / "data") as directory:
        for command in (["demo"], ["up"]):
            code, _, errors = kvlens(
                *command,
                "--data-dir",
                "data",
                cwd=tmp_path,
                **({"KVLENS_REPLICAS": ENGINE} if command == ["up"] else {}),
            )
            assert code == 1
            assert errors == (
                f"kvlens: directory {directory.path} is in use by process {os.getpid()}; "
                "stop it or choose another --data-dir\n"
            )


def wait_reading(process: int) -> None:
    """Return when a process has opened its standard input a second time, by name."""
    files = Path(f"/proc/{process}/fd")
    deadline = time.monotonic() + 60
    while True:
        try:
            opened = [os.readlink(file) for file in files.iterdir()]
            if opened.count(os.readlink(files / "0")) > 1:
                return
        except FileNotFoundError:  # closed between two looks
            pass
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("signal_number", "code", "line"), [(2, 130, "kvlens: interrupted"), (15, 143, "kvlens: terminated")]
)
def test_signals_end_a_command_with_one_line(tmp_path: Path, signal_number: int, code: int, line: str):
    with subprocess.Popen(
        # Reads a pipe that nobody writes.
        [sys.executable, "-m", "pipeline.cli.main", "analyze", "/dev/stdin"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Tests that were started in the background of a shell ignore it, and what they start does, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        wait_reading(process.pid)
        process.send_signal(signal_number)
        assert process.wait(60) == code
        assert process.stderr is not None
        # An empty line ends that of the terminal's ^C.
        assert process.stderr.read().decode().split("\n") in ([line, ""], ["", line, ""])


IN_SOME_TASK = """
import asyncio, click, signal
from pipeline.cli import failures

@click.command()
def command():
    asyncio.run(waiting())

async def waiting():
    aside = asyncio.create_task(signalled())
    await asyncio.Event().wait()

async def signalled():
    signal.raise_signal(signal.SIGTERM)

failures.run(command)
"""


def test_a_signal_in_the_middle_of_a_task_that_nobody_awaits_ends_a_command(tmp_path: Path):
    process = started([sys.executable, "-c", IN_SOME_TASK], tmp_path / "log", cwd=tmp_path)
    try:
        assert process.process.wait(60) == 143
        assert process.said() == "kvlens: terminated\n"
    finally:
        process.close()


BEFORE_A_FIRST_STEP = """
import click, signal
from pipeline.cli import failures

@click.command()
def command():
    run(waiting())

async def waiting():
    pass

def run(coroutine):
    signal.raise_signal(signal.{name})

failures.run(command)
"""


WHILE_A_LOOP_IS_MADE = """
import asyncio, click, signal, socket
from pipeline.cli import failures

def interrupted():
    signal.raise_signal(signal.{name})

@click.command()
def command():
    socket.socketpair = interrupted
    asyncio.run(asyncio.sleep(0))

failures.run(command)
"""


@pytest.mark.parametrize("script", [BEFORE_A_FIRST_STEP, WHILE_A_LOOP_IS_MADE])
@pytest.mark.parametrize(
    ("name", "line"), [("SIGINT", "interrupted"), *night_rows(("SIGTERM", "terminated"))]
)
def test_a_signal_that_leaves_something_half_made_ends_a_command_with_its_line(
    tmp_path: Path, script: str, name: str, line: str
):
    process = started([sys.executable, "-c", script.format(name=name)], tmp_path / "log", cwd=tmp_path)
    try:
        process.process.wait(60)
        assert [said for said in process.said().splitlines() if said] == [f"kvlens: {line}"]
    finally:
        process.close()


@pytest.mark.parametrize("arguments", [["topics", "list"], ["verify"], *at_night([["doctor"], ["migrate"]])])
def test_an_interrupt_ends_a_wait_for_who_does_not_answer(tmp_path: Path, arguments: list[str]):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        deaf.settimeout(60)
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        process = started(
            [*KVLENS, *arguments],
            tmp_path / "log",
            cwd=tmp_path,
            KVLENS_KAFKA__BOOTSTRAP_SERVERS=address,
            KVLENS_CLICKHOUSE__URL=f"http://{address}",
        )
        try:
            with deaf.accept()[0] as asked:
                assert asked.recv(1)
                process.send(signal.SIGINT)
                assert process.process.wait(120) == 130
            assert [line for line in process.said().splitlines() if line] == ["kvlens: interrupted"]
        finally:
            process.close()


@pytest.mark.parametrize(
    "arguments", first_by_day([["connect"], ["work"], ["topics", "list"], ["topics", "apply"], ["up"]])
)
def test_a_certificate_that_is_missing_is_named(tmp_path: Path, closed_port: int, arguments: list[str]):
    code, _, errors = kvlens(*arguments, cwd=tmp_path, **without_certificate(tmp_path, closed_port))
    assert code == 1
    assert_named_once(errors, tmp_path)


def test_verify_names_a_certificate_that_is_missing(tmp_path: Path, closed_port: int, store: EmbeddedStore):
    environment = without_certificate(tmp_path, closed_port) | {"KVLENS_CLICKHOUSE__URL": store.url}
    code, _, errors = kvlens("verify", cwd=tmp_path, **environment)
    assert code == 2
    assert_named_once(errors, tmp_path)


def assert_named_once(errors: str, directory: Path) -> None:
    line = f"kvlens: cannot use {directory}/ca.pem of kafka.ssl_cafile: No such file or directory"
    assert [told for told in errors.splitlines() if told.startswith("kvlens: ")] == [line]
    assert errors.splitlines()[-1] == line
    assert "Traceback" not in errors


def test_the_doctor_names_a_certificate_that_is_missing_and_looks_at_the_rest(
    tmp_path: Path, closed_port: int
):
    code, output, errors = kvlens("doctor", cwd=tmp_path, **without_certificate(tmp_path, closed_port))
    assert (code, errors) == (1, "")
    assert f"cannot use {tmp_path}/ca.pem of kafka.ssl_cafile: No such file or directory" in output
    assert "ClickHouse" in output


def without_certificate(directory: Path, port: int) -> dict[str, str]:
    return {
        "KVLENS_REPLICAS": ENGINE,
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{port}",
        "KVLENS_CLICKHOUSE__URL": f"http://127.0.0.1:{port}",
        "KVLENS_KAFKA__SECURITY_PROTOCOL": "SSL",
        "KVLENS_KAFKA__SSL_CAFILE": f"{directory}/ca.pem",
    }
