"""SIGTERM and Ctrl-C end a command soon, whatever it is at."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import zmq
from _pytest.mark.structures import ParameterSet

from pipeline.cli.failures import INTERRUPTED, TERMINATED
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.worker.exits import ExitCode
from tests.support.engines import PubSocket
from tests.support.patience import PATIENCE
from tests.support.processes import KVLENS, Started, kvlens, started
from tests.support.stopping import (
    ENGINE,
    RESOLVING,
    RUNNING,
    STARTING,
    WAITING,
    Moment,
    ended,
    installation,
    nobody_listens,
)

DEADLINE = PATIENCE
IN_A_CONTAINER = ("env", "--block-signal=TERM,INT", sys.executable, "-c")
"""As deploy/image/entrypoint.sh starts it: what lets no signal in never ends by one."""
ENTRY = "from pipeline.cli.entry import main; main()"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """A function that starts a command whose code is not compiled yet; killed after the test."""
    running: list[Started] = []

    def start(command: str, **settings: str) -> Started:
        more = {"KVLENS_REPLICAS": ENGINE, "NUMBA_CACHE_DIR": str(tmp_path / "nothing"), **settings}
        log = tmp_path / f"{len(running)}.log"
        running.append(started([*KVLENS, command], log, cwd=tmp_path, PYTHONUNBUFFERED="1", **more))
        return running[-1]

    yield start
    for process in running:
        process.close()


def by_day(moments: Sequence[Moment], *names: str) -> list[ParameterSet]:
    """Return moments as parameters; all but the named ones wait for the night."""
    return [
        pytest.param(moment, id=moment.name, marks=() if moment.name in names else pytest.mark.night)
        for moment in moments
    ]


def code_of(process: Started, number: int) -> int:
    """Send a signal; return the exit code, which must come soon."""
    code, seconds = ended(process, number)
    print(f"ended after {seconds:.1f} s")  # noqa: T201 - figures are printed
    return code


def wait_until_env_has_made_way(process: Started) -> None:
    deadline = time.monotonic() + DEADLINE
    while Path(f"/proc/{process.process.pid}/comm").read_text() == "env\n":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_until_taken(metrics: int, batches: int) -> None:
    """Wait until a connector has them: what it never received is nothing that it could give up."""
    deadline = time.monotonic() + DEADLINE
    while (
        f'kvlens_connector_batches_total{{replica="a"}} {batches}.0'
        not in page(f"http://127.0.0.1:{metrics}/metrics")[1]
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def half_asked(port: int, path: str) -> socket.socket:
    """Return a connection with a request that waits for the rest of its body."""
    connection = socket.create_connection(("127.0.0.1", port))
    head = f"POST /{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: 9\r\n\r\n{{".encode())
    return connection


def page(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize(
    "seconds", [0.0, *(pytest.param(later, marks=pytest.mark.night) for later in (0.3, 1.0, 3.0))]
)
def test_at_any_moment_after_its_start(tmp_path: Path, free_port: Callable[[], int], seconds: float) -> None:
    nowhere = {
        **nobody_listens(free_port),
        "KVLENS_REPLICAS": ENGINE,
        "NUMBA_CACHE_DIR": str(tmp_path / "nothing"),
    }
    commands = {
        command: started(
            [*IN_A_CONTAINER, ENTRY, command], tmp_path / f"{command}.log", cwd=tmp_path, **nowhere
        )
        for command in ("connect", "work", "index", "serve")
    }
    try:
        for process in commands.values():
            wait_until_env_has_made_way(process)
        time.sleep(seconds)
        for process in commands.values():
            process.send(signal.SIGTERM)
        for command, process in commands.items():
            code = process.process.wait(DEADLINE)
            assert code in (0, TERMINATED), (command, process.said())
            assert process.said().endswith("kvlens: terminated\n") == (code == TERMINATED), process.said()
    finally:
        for process in commands.values():
            process.close()


@pytest.mark.night
@pytest.mark.parametrize("command", ["connect", "work"])
def test_while_it_waits_for_a_broker_and_compiles(
    run: Callable[..., Started], free_port: Callable[[], int], command: str
) -> None:
    broker, metrics = f"127.0.0.1:{free_port()}", free_port()
    section = {"connect": "CONNECTOR", "work": "WORKER"}[command]
    process = run(
        command, KVLENS_KAFKA__BOOTSTRAP_SERVERS=broker, **{f"KVLENS_{section}__METRICS_PORT": str(metrics)}
    )
    process.wait_said('"waiting"')
    status, reason = page(f"http://127.0.0.1:{metrics}/readyz")
    assert status == 503
    assert broker in reason
    assert "refused" in reason.lower()
    assert page(f"http://127.0.0.1:{metrics}/livez")[0] == 200
    assert code_of(process, signal.SIGTERM) == 0
    assert process.said().count('"waiting"') == 1


@pytest.mark.night
def test_while_a_connector_compiles(
    run: Callable[..., Started], broker: EmbeddedBroker, tmp_path: Path
) -> None:
    kafka = {
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "KVLENS_KAFKA__TOPIC_PREFIX": "stopping",
    }
    process = run("connect", **kafka)
    process.wait_said("kvlens topics apply")
    assert kvlens("topics", "apply", cwd=tmp_path, **kafka)[0] == 0
    process.wait_said("connector_started")
    assert code_of(process, signal.SIGTERM) == 0


@pytest.fixture
def broken(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[tuple[EmbeddedBroker, EmbeddedStore]]:
    """A broker and a store to freeze."""
    parts = EmbeddedBroker(tmp_path / "broker", free_port()), EmbeddedStore(tmp_path / "store", free_port())
    try:
        for part in parts:
            part.start()
        yield parts
    finally:
        for part in parts:
            part.kill()


@pytest.mark.night
def test_while_the_store_hangs_and_while_the_broker_hangs(
    run: Callable[..., Started],
    broken: tuple[EmbeddedBroker, EmbeddedStore],
    free_port: Callable[[], int],
    tmp_path: Path,
) -> None:
    broker, store = broken
    reports, asked = free_port(), free_port()
    settings = {
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "KVLENS_CLICKHOUSE__URL": store.url,
        "NUMBA_CACHE_DIR": "",
    }
    assert kvlens("topics", "apply", cwd=tmp_path, **settings)[0] == 0
    early = run("work", **settings)
    early.wait_said("run `kvlens migrate`")
    assert kvlens("migrate", cwd=tmp_path, **settings)[0] == 0
    early.wait_said("partitions assigned", times=2)
    listener = {"KVLENS_LMCACHE__PORT": str(reports), "KVLENS_LMCACHE__MODELS": "m"}
    connector = run("connect", **settings, **listener)
    connector.wait_said("connector_started")
    index = run("index", **settings, KVLENS_INDEX__PORT=str(asked))
    index.wait_said("caught up with the log")
    store.signal(signal.SIGSTOP)
    assert code_of(early, signal.SIGTERM) in (ExitCode.OK, ExitCode.RESTART)
    late = run("work", **settings)
    late.wait_said(store.url)
    assert code_of(late, signal.SIGINT) == 0
    broker.signal(signal.SIGSTOP)
    with half_asked(reports, "events"), half_asked(asked, "query_by_hash"):
        assert code_of(connector, signal.SIGTERM) == 0
        assert code_of(index, signal.SIGTERM) == 0
    for command in ("connect", "index"):
        joining = run(command, **settings, KVLENS_INDEX__PORT="0")
        joining.wait_said('"waiting"', seconds=180.0)
        assert code_of(joining, signal.SIGINT) == 0


@pytest.mark.night
def test_while_kafka_is_gone(
    run: Callable[..., Started],
    broken: tuple[EmbeddedBroker, EmbeddedStore],
    context: zmq.Context[zmq.Socket[bytes]],
    free_port: Callable[[], int],
    tmp_path: Path,
) -> None:
    """Ctrl-C does not wait for as long as the settings allow; what was not published is told."""
    broker, store = broken
    engine, metrics = PubSocket(context), free_port()
    settings = {
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "KVLENS_CLICKHOUSE__URL": store.url,
        "KVLENS_REPLICAS": ENGINE.replace("tcp://127.0.0.1:9", engine.endpoint),
        "KVLENS_CONNECTOR__LINGER_SECONDS": "0",
        "KVLENS_CONNECTOR__DRAIN_SECONDS": "600",
        "KVLENS_CONNECTOR__METRICS_PORT": str(metrics),
        "KVLENS_WORKER__STOP_SECONDS": "600",
        "NUMBA_CACHE_DIR": "",
    }
    assert kvlens("topics", "apply", cwd=tmp_path, **settings)[0] == 0
    assert kvlens("migrate", cwd=tmp_path, **settings)[0] == 0
    processes = {command: run(command, **settings) for command in ("connect", "work")}
    processes["connect"].wait_said("connector_started")
    asyncio.run(engine.subscribed())
    processes["work"].wait_said("partitions assigned", times=2)
    broker.kill()
    engine.publish(7)
    wait_until_taken(metrics, 7)
    assert code_of(processes["connect"], signal.SIGINT) == 0
    assert code_of(processes["work"], signal.SIGINT) in (ExitCode.OK, ExitCode.UNAVAILABLE, ExitCode.RESTART)
    said = [json.loads(line) for line in processes["connect"].said().splitlines()]
    assert not [line for line in said if line["event"] == "messages_abandoned"]
    abandoned = [line["records"] for line in said if line["event"] == "records_abandoned"]
    # Notices of the idle source come beside its batches.
    assert len(abandoned) == 1
    assert abandoned[0] >= 7
    assert said[-1]["event"] == "connector_stopped"
    assert said[-1]["abandoned_records"] == abandoned[0]
    engine.close()


@pytest.mark.night
def test_while_kafka_and_clickhouse_hang(
    broken: tuple[EmbeddedBroker, EmbeddedStore], free_port: Callable[[], int], tmp_path: Path
) -> None:
    processes = installation(*broken, tmp_path, free_port)
    try:
        for part in broken:
            part.signal(signal.SIGSTOP)
        codes = {command: code_of(process, signal.SIGINT) for command, process in processes.items()}
        assert codes.pop("work") in (ExitCode.OK, ExitCode.RESTART)
        assert codes == {"connect": 0, "index": 0, "serve": 0}
    finally:
        for process in processes.values():
            process.close()


@pytest.mark.parametrize("moment", by_day([*WAITING, *RESOLVING, *RUNNING], "work, waiting for a broker"))
def test_by_ctrl_c(moment: Moment, free_port: Callable[[], int], tmp_path: Path) -> None:
    process = moment.start(tmp_path, free_port)
    try:
        assert code_of(process, signal.SIGINT) == moment.code
        if moment.code == INTERRUPTED:
            assert process.said().splitlines()[-1] == "kvlens: interrupted"
    finally:
        process.close()
    wait_until_alone(tmp_path)


@pytest.fixture
def deaf() -> Iterator[socket.socket]:
    """What listens where a store should be; it answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(DEADLINE)
        yield listening


def never_answered(deaf: socket.socket) -> dict[str, str]:
    return {
        "KVLENS_CLICKHOUSE__URL": f"http://127.0.0.1:{deaf.getsockname()[1]}",
        # What waits for the store ends long after the deadline.
        "KVLENS_CLICKHOUSE__TIMEOUT_SECONDS": "600",
    }


@pytest.mark.night
@pytest.mark.parametrize("asked", ["api/panels/fleet-sources", "fleet/metrics", "api/findings"])
def test_while_the_page_asks_a_store_that_hangs(
    run: Callable[..., Started], deaf: socket.socket, free_port: Callable[[], int], asked: str
) -> None:
    port = free_port()
    nobody = {"KVLENS_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}"}
    process = run("serve", KVLENS_PAGE__PORT=str(port), **nobody, **never_answered(deaf))
    process.wait_said("boards are on")
    with contextlib.ExitStack() as connections, socket.create_connection(("127.0.0.1", port)) as browser:
        connections.enter_context(deaf.accept()[0])  # the look at the beginning
        browser.sendall(f"GET /{asked}?from=0&to=3600 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        question = connections.enter_context(deaf.accept()[0])
        assert question.recv(1)
        assert code_of(process, signal.SIGTERM) == 0


@pytest.mark.night
def test_while_the_recount_asks_a_store_that_hangs(
    run: Callable[..., Started], broker: EmbeddedBroker, deaf: socket.socket, tmp_path: Path
) -> None:
    settings = {
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "KVLENS_KAFKA__TOPIC_PREFIX": "recount",
        **never_answered(deaf),
    }
    assert kvlens("topics", "apply", cwd=tmp_path, **settings)[0] == 0
    process = run("verify", **settings)
    with deaf.accept()[0] as question:
        assert question.recv(1)
        assert code_of(process, signal.SIGTERM) == TERMINATED
    assert process.said().splitlines()[-1] == "kvlens: terminated"


@pytest.mark.parametrize("moment", by_day(STARTING, "demo, formatting Kafka's storage"))
def test_while_everything_starts(moment: Moment, free_port: Callable[[], int], tmp_path: Path) -> None:
    process = moment.start(tmp_path, free_port)
    try:
        assert code_of(process, signal.SIGINT) == moment.code
    finally:
        process.close()
    lines = process.said().splitlines()
    assert lines[-1] == "kvlens: interrupted"
    assert "stopping" in lines
    wait_until_alone(tmp_path)


def wait_until_alone(directory: Path) -> None:
    """Return when nothing runs for a directory: what was being started ends by itself, without its parent."""
    deadline = time.monotonic() + DEADLINE
    while left := [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(directory) in _read(path)]:
        assert time.monotonic() < deadline, [_read(path) for path in left]
        time.sleep(0.1)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # it has ended
        return ""
