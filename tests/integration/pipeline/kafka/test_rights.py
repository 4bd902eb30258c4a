"""Every process does its work with the documented rights alone, on a broker that checks them."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import clickhouse_connect
import pytest
from aiokafka.conn import create_conn
from aiokafka.errors import SaslAuthenticationFailed
from clickhouse_connect.driver.client import Client

from connectors.kafka.security import client_options
from pipeline.generated.topics_file import load_topics
from pipeline.kafka.rights import Right, copying, reading_reports, roles
from pipeline.local.broker import embedded
from pipeline.local.broker.properties import server_properties
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.settings import Kafka
from tests.support.acls import Acls
from tests.support.committed import wait_committed
from tests.support.inputs.captures import reported
from tests.support.inputs.empty_tables import EmptyTables
from tests.support.preloaded import preloaded
from tests.support.reports import MODEL, NAME, make_topic, send
from tests.support.suite.servers import Shared

ROOT = Path(__file__).parents[4]
CAPTURE = ROOT / "tests" / "captures" / "vllm-0.25.1-map-dp0.frames.msgpack.gz"
USERS = {
    "kvlens topics apply": "apply",
    "kvlens connect": "connect",
    "kvlens work, agent replica": "replica",
    "kvlens work, agent fleet": "fleet",
    "kvlens index": "index",
    "kvlens index, index.choices": "recording",
    "kvlens verify": "verify",
    "kvlens doctor": "doctor",
    "kvlens state rebuild": "rebuild",
    "kvlens topics copy": "copy",
    "kvlens connect, lmcache.topic": "reports",
}
MORE = {"topic_prefix": "more", "group": "moregroup"}
ROLES = {USERS[role.command]: role for role in roles(load_topics(), topic_prefix="sec", group="secgroup")}
ROLES["copy"] = copying(load_topics(), "sec", **MORE)
COMMANDS = {
    "replica": ["work"],
    "fleet": ["work"],
    "connect": ["connect"],
    "verify": ["verify"],
    "rebuild": ["state", "rebuild", "--yes", "--no-wait"],
}


def secured(port: int) -> Callable[..., Mapping[str, str]]:
    """The embedded broker's settings with a second listener, where users log in and have to have rights.

    The first one stays for the supervisor and for handing out rights: its anonymous user may do everything.
    """

    def properties(data: Path, host: str, own_port: int, controller_port: int) -> Mapping[str, str]:
        plain = server_properties(data, host, own_port, controller_port)
        users = " ".join(f'user_{name}="{name}-word"' for name in USERS.values())
        listener = f"SECURED://{host}:{port}"
        return {
            **plain,
            "listeners": f"{plain['listeners']},{listener}",
            "advertised.listeners": f"{plain['advertised.listeners']},{listener}",
            "listener.security.protocol.map": (
                f"{plain['listener.security.protocol.map']},SECURED:SASL_PLAINTEXT"
            ),
            "listener.name.secured.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            # Without a verifier of its own, Kafka takes tokens that nobody signed, and looks at their times.
            "listener.name.secured.oauthbearer.sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                'unsecuredLoginStringClaim_sub="broker";'
            ),
            "listener.name.secured.plain.sasl.jaas.config": (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }

    return properties


@dataclass
class Part:
    """A command of kvlens that runs, with all it says in a file."""

    process: subprocess.Popen[bytes]
    log: Path

    def ended(self, seconds: float = 180.0) -> tuple[int, str]:
        """Return its exit code and all it said."""
        code = self.process.wait(seconds)
        return code, self.log.read_text()

    def wait_said(self, words: str, seconds: float = 180.0) -> str:
        """Return all it has said when the words are among it."""
        deadline = time.monotonic() + seconds
        while words not in (said := self.log.read_text()):
            assert self.process.poll() is None, said[-2000:]
            assert time.monotonic() < deadline, said[-2000:]
            time.sleep(0.05)
        return said

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        code, said = self.ended()
        assert code == 0, said[-2000:]


@dataclass
class Cluster:
    """A broker that checks rights, a store that does not, and an engine's settings."""

    shared: Shared
    directory: Path
    plain: str
    acls: Acls
    environment: Mapping[str, str]
    endpoint: str
    store: str
    database: str
    parts: list[Part] = field(default_factory=list)

    def start(self, user: str, *arguments: str, **environment: str) -> Part:
        """Start a command; what the environment says of the login counts instead of the user's password."""
        log = self.directory / f"{len(self.parts)}-{user}.log"
        login = {"KVLENS_KAFKA__SASL_USERNAME": user, "KVLENS_KAFKA__SASL_PASSWORD": f"{user}-word"}
        if "KVLENS_KAFKA__SASL_PASSWORD_FILE" in environment:
            del login["KVLENS_KAFKA__SASL_PASSWORD"]
        more = {**self.environment, **login, **environment}
        begun = preloaded(self.shared, arguments, log, cwd=self.directory, **more)
        self.parts.append(Part(begun.process, log))
        return self.parts[-1]

    def run(self, user: str, *arguments: str) -> tuple[int, str]:
        """Run a command to its end and return its exit code and all it said."""
        return self.start(user, *arguments).ended()

    @cached_property
    def client(self) -> Client:
        """Kept, because a new one asks for all settings of the store first."""
        return clickhouse_connect.get_client(dsn=self.store, autogenerate_session_id=False)

    def rows(self, table: str) -> int:
        return int(str(self.client.command(f"SELECT count() FROM {self.database}.{table}")))

    def wait_rows(self, table: str, count: int, seconds: float = 180.0) -> None:
        deadline = time.monotonic() + seconds
        while self.rows(table) < count:
            assert time.monotonic() < deadline, [part.log.read_text()[-1000:] for part in self.parts[-4:]]
            time.sleep(0.2)


@pytest.fixture(scope="module")
def cluster(
    shared: Shared,
    store: EmbeddedStore,
    empty_tables: EmptyTables,
    free_port: Callable[..., int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """Topics made, tables lent, and every user has the rights of its role."""
    with empty_tables.lent() as tables:
        yield from secured_cluster(shared, store, tables.clickhouse.database, free_port, tmp_path_factory)


def secured_cluster(
    shared: Shared,
    store: EmbeddedStore,
    database: str,
    free_port: Callable[..., int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("rights")
    port, endpoint = free_port(), f"tcp://127.0.0.1:{free_port()}"
    broker = embedded.EmbeddedBroker(directory / "broker", free_port())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "server_properties", secured(port))
        broker.start()
    environment = {
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{port}",
        "KVLENS_KAFKA__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KVLENS_KAFKA__SASL_MECHANISM": "PLAIN",
        "KVLENS_KAFKA__TOPIC_PREFIX": "sec",
        "KVLENS_KAFKA__GROUP": "secgroup",
        "KVLENS_CLICKHOUSE__URL": store.url,
        "KVLENS_CLICKHOUSE__DATABASE": database,
        "KVLENS_WORKER__CHECKPOINT_SECONDS": "0.3",
        "KVLENS_WORKER__ROLLUP_SECONDS": "2",
        "KVLENS_WORKER__IDLE_CARRY_SECONDS": "0.001",
        "KVLENS_REPLICAS": f'[{{"id": "a", "model": "m", "endpoint": "{endpoint}"}}]',
    }
    acls = Acls(Kafka(bootstrap_servers=broker.bootstrap_servers))
    cluster = Cluster(
        shared, directory, broker.bootstrap_servers, acls, environment, endpoint, store.url, database
    )
    try:
        for user, role in ROLES.items():
            cluster.acls.allow(user, role.rights)
        # One that records choices is an index besides.
        cluster.acls.allow("recording", ROLES["index"].rights)
        code, said = cluster.run("apply", "topics", "apply")
        assert code == 0, said
        yield cluster
    finally:
        for part in cluster.parts:
            part.process.kill()
            part.process.wait()
        broker.kill()
        cluster.client.close()


def events_become_rows(cluster: Cluster, life: int) -> list[Part]:
    """Run a connector and both agents until an engine was played; return them."""
    running = [cluster.start("connect", "connect")]
    running += [cluster.start(agent, "work", KVLENS_WORKER__AGENTS=agent) for agent in ("replica", "fleet")]
    engine = ("play", str(CAPTURE), "--endpoint", cluster.endpoint, "--speed", "max")
    code, said = cluster.run("nobody", *engine)
    assert code == 0, said
    cluster.wait_rows("sources FINAL", life)
    cluster.wait_rows("fills_10s", 1)
    return running


def live(cluster: Cluster, life: int) -> None:
    """Run all that runs for long, for as long as an engine is played, and end it."""
    running = events_become_rows(cluster, life)
    for user, choices in (("index", "false"), ("recording", "true")):
        index = cluster.start(user, "index", KVLENS_INDEX__PORT="0", KVLENS_INDEX__CHOICES=choices)
        index.wait_said("caught up with the log")
        if choices == "true":
            post_choice(index, f"request-{life}")
        index.stop()
    cluster.wait_rows("choices FINAL", life)
    code, said = cluster.run("doctor", "doctor")
    assert code in (0, 1), said
    assert "unanswered" not in said
    for part in running:
        part.stop()


@pytest.mark.night
def test_a_second_life_of_each_begins_with_what_the_first_one_saved(cluster: Cluster) -> None:
    for life in (1, 2):
        live(cluster, life)
    code, said = cluster.run("verify", "verify")
    assert code == 0, said


@pytest.mark.night
def test_every_process_needs_no_more_than_its_rights(cluster: Cluster) -> None:
    live(cluster, 1)
    code, said = cluster.run("verify", "verify")
    assert code == 0, said
    more = {f"KVLENS_KAFKA__{name.upper()}": value for name, value in {**MORE, "partitions": "5"}.items()}
    anybody = {
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": cluster.plain,
        "KVLENS_KAFKA__SECURITY_PROTOCOL": "PLAINTEXT",
    }
    code, said = cluster.start("nobody", "topics", "apply", **more, **anybody).ended()
    assert code == 0, said
    code, said = cluster.start("copy", "topics", "copy", "--from", "sec", **more).ended()
    assert (code, "none came meanwhile" in said) == (0, True), said
    code, said = cluster.run("rebuild", "state", "rebuild", "--yes", "--no-wait")
    assert code == 0, said


def test_events_become_rows_with_no_more_than_the_documented_rights(cluster: Cluster) -> None:
    running = events_become_rows(cluster, 1)
    cluster.wait_rows("redundancy_1m FINAL", 1)
    for part in running:
        part.stop()


def post_choice(index: Part, request: str) -> None:
    """Return when an index has accepted a choice of the replica that there is."""
    choice = {"request_id": request, "block_hashes": [1], "instance_id": "a"}
    body = json.dumps({"model_name": "m", "choices": [choice]}).encode()
    address = index.wait_said("answers are on ").split("answers are on ")[1].split()[0]
    deadline = time.monotonic() + 60
    status = 503
    while status == 503:
        assert time.monotonic() < deadline, index.log.read_text()[-2000:]
        try:
            typed = {"Content-Type": "application/json"}
            request_of = urllib.request.Request(f"{address}choices", body, typed)
            with urllib.request.urlopen(request_of, timeout=30) as answer:
                status = answer.status
        except urllib.error.HTTPError as error:
            status = error.code
            error.close()
            time.sleep(0.1)
    assert status == 200


@pytest.mark.night
def test_an_index_that_may_not_write_choices_says_so_and_answers_questions(cluster: Cluster) -> None:
    index = cluster.start("index", "index", KVLENS_INDEX__PORT="0", KVLENS_INDEX__CHOICES="true")
    index.wait_said("caught up with the log")
    said = index.wait_said("choices wait")
    assert "this user may not see the topic sec.choices.v1" in said
    assert "Traceback" not in said
    index.stop()


@pytest.mark.night
def test_an_index_that_may_not_read_the_log_says_so_and_waits_for_it(cluster: Cluster) -> None:
    with cluster.acls.without("index", right_of("index", "Read", "sec.events.v1")):
        index = cluster.start("index", "index", KVLENS_INDEX__PORT="0")
        said = index.wait_said('"waiting"')
        assert "this user may not see the topic sec.events.v1" in said
        assert "Traceback" not in said
    index.wait_said("caught up with the log")
    index.stop()


def right_of(user: str, operation: str, name: str) -> Right:
    [right] = [
        right for right in ROLES[user].rights if right.operation == operation and right.name.startswith(name)
    ]
    return right


@pytest.mark.parametrize(
    ("user", "operation", "name", "code", "line"),
    [
        ("verify", "Read", "sec.residency.v1", 2, "this user may not see the topic"),
        pytest.param(
            "rebuild",
            "Delete",
            "sec.residency.v1",
            1,
            "give kafka.sasl_username this right (docs/acls.md)",
            marks=pytest.mark.night,
        ),
        pytest.param(
            "rebuild",
            "Read",
            "secgroup.fleet",
            1,
            "this user may not join the consumer group",
            marks=pytest.mark.night,
        ),
        pytest.param(
            "rebuild",
            "Write",
            "secgroup.replica-",
            1,
            "this user lacks Write on the transactional id",
            marks=pytest.mark.night,
        ),
    ],
)
def test_a_missing_right_is_named(
    cluster: Cluster, user: str, operation: str, name: str, code: int, line: str
) -> None:
    with cluster.acls.without(user, right_of(user, operation, name)):
        found, said = cluster.run(user, *COMMANDS[user])
    last = said.splitlines()[-1]
    assert found == code, said[-2000:]
    assert line in last
    assert name in last
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("user", "operation", "name", "line"),
    [
        pytest.param(
            "connect",
            "Read",
            "sec.positions.v1",
            "this user lacks Read on the topic",
            marks=pytest.mark.night,
        ),
        pytest.param(
            "connect",
            "Write",
            "sec.positions.v1",
            "this user lacks Write on the topic",
            marks=pytest.mark.night,
        ),
        pytest.param(
            "replica",
            "Describe",
            "sec.checkpoints.fleet.v1",
            "this user may not see the topic",
            marks=pytest.mark.night,
        ),
        ("replica", "Read", "secgroup.replica", "give kafka.sasl_username Read on it (docs/acls.md)"),
        pytest.param(
            "replica",
            "Write",
            "secgroup.replica-",
            "this user lacks Write on the transactional id",
            marks=pytest.mark.night,
        ),
        pytest.param(
            # The agent writes there as well, and who may write may see.
            "fleet",
            "Read",
            "sec.residency.v1",
            "this user lacks Read on the topic",
            marks=pytest.mark.night,
        ),
    ],
)
def test_a_process_that_lacks_a_right_says_which_and_waits_for_it(
    cluster: Cluster, user: str, operation: str, name: str, line: str
) -> None:
    with cluster.acls.without(user, right_of(user, operation, name)):
        agents = "both" if user == "connect" else user
        part = cluster.start(user, *COMMANDS[user], KVLENS_WORKER__AGENTS=agents)
        [waiting] = [said for said in part.wait_said('"waiting"').splitlines() if '"waiting"' in said]
        assert line in waiting
        assert name in waiting
        assert "Traceback" not in waiting
    # It has the right again, and begins without anybody's help.
    part.wait_said("connector_started" if user == "connect" else "partitions assigned")
    part.stop()


@pytest.mark.night
def test_a_wrong_password_ends_a_process_with_one_line(cluster: Cluster) -> None:
    for command in ("connect", "work"):
        code, said = cluster.start("replica", command, KVLENS_KAFKA__SASL_PASSWORD="wrong").ended()
        last = said.splitlines()[-1]
        assert code == 1, said[-2000:]
        assert "refuses the login" in last
        assert "kafka.sasl_username and its password" in last
        assert "Traceback" not in said


@pytest.mark.night
def test_a_password_in_a_file_is_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("wrong\n")
    given = {"KVLENS_KAFKA__SASL_PASSWORD_FILE": str(file)}
    part = cluster.start("connect", "connect", **given)
    said = part.wait_said('"waiting"')
    assert "refuses the login" in said
    assert "Traceback" not in said
    # A login is seldom tried again, and holds no exit.
    began = time.monotonic()
    part.stop()
    assert time.monotonic() - began < 30


@pytest.mark.night
async def test_one_client_logs_on_with_the_password_of_now(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("wrong")
    address = cluster.environment["KVLENS_KAFKA__BOOTSTRAP_SERVERS"]
    options = client_options(
        Kafka(
            bootstrap_servers=address,
            security_protocol="SASL_PLAINTEXT",
            sasl_username="verify",
            sasl_password_file=str(file),
        )
    )
    del options["bootstrap_servers"]
    host, _, port = address.partition(":")
    with pytest.raises(SaslAuthenticationFailed):
        await create_conn(host, int(port), **options)
    file.write_text("verify-word")
    (await create_conn(host, int(port), **options)).close()


def token(user: str, seconds: float) -> str:
    """A token that nobody signed, of a user, that ends after so many seconds."""
    head, body = {"alg": "none"}, {"sub": user, "iat": time.time() - 60, "exp": time.time() + seconds}
    parts = (urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (head, body))
    return ".".join((*parts, ""))


@pytest.mark.night
def test_tokens_of_files_are_logins_too(cluster: Cluster, tmp_path: Path) -> None:
    running = []
    for user, command, words in (
        ("connect", "connect", "connector_started"),
        ("replica", "work", "partitions assigned"),
    ):
        file = tmp_path / user
        file.write_text(token(user, 3600))
        given = {
            "KVLENS_KAFKA__SASL_MECHANISM": "OAUTHBEARER",
            "KVLENS_KAFKA__SASL_TOKEN_FILE": str(file),
            "KVLENS_WORKER__AGENTS": "replica",
        }
        running.append(cluster.start(user, command, **given))
        running[-1].wait_said(words)
    for part in running:
        part.stop()
    file.write_text(token("replica", -30))
    part = cluster.start("replica", "work", **given)
    said = part.wait_said('"waiting"')
    part.stop()
    assert "refuses the login" in said
    assert "kafka.sasl_token_file" in said


@pytest.mark.night
def test_the_topic_of_lmcache_is_read_with_a_login_of_its_own(cluster: Cluster) -> None:
    topic, group = "cache-events", "reports"
    make_topic(cluster.plain, topic, 1)
    records = reported(NAME, "records")[:60]
    send(cluster.plain, topic, records)
    # Without the login of [kafka], which is the one of the connector's own topics and has no right here.
    given = {
        "KVLENS_KAFKA__TOPIC_PREFIX": "sec",
        "KVLENS_LMCACHE__MODELS": MODEL,
        "KVLENS_LMCACHE__TOPIC": topic,
        "KVLENS_LMCACHE__GROUP": group,
        "KVLENS_LMCACHE_KAFKA__BOOTSTRAP_SERVERS": cluster.environment["KVLENS_KAFKA__BOOTSTRAP_SERVERS"],
        "KVLENS_LMCACHE_KAFKA__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KVLENS_LMCACHE_KAFKA__SASL_MECHANISM": "PLAIN",
        "KVLENS_LMCACHE_KAFKA__SASL_USERNAME": "reports",
    }
    part = cluster.start("connect", "connect", **given, KVLENS_LMCACHE_KAFKA__SASL_PASSWORD="wrong")
    said = part.wait_said("refuses the login")
    part.stop()
    assert "lmcache_kafka.sasl_username and its password" in said
    assert " kafka.sasl" not in said
    word = {"KVLENS_LMCACHE_KAFKA__SASL_PASSWORD": "reports-word"}
    part = cluster.start("connect", "connect", **given, **word)
    said = part.wait_said("give lmcache_kafka.sasl_username")
    assert topic in said
    cluster.acls.allow("reports", reading_reports(topic, group).rights)
    part.wait_said(f"node-a@{MODEL}")
    wait_committed(cluster.plain, group, topic, 1, len(records))
    part.stop()


@pytest.mark.night
@pytest.mark.parametrize(
    ("protocol", "plain_port", "reason"),
    [
        ("PLAINTEXT", False, "as a port does that wants another kafka.security_protocol"),
        ("SSL", False, "as a port without TLS does; kafka.security_protocol is SSL"),
        ("SASL_SSL", True, "as a port without TLS does; kafka.security_protocol is SASL_SSL"),
        ("SASL_PLAINTEXT", True, "takes no login, and kafka.security_protocol is SASL_PLAINTEXT"),
    ],
)
def test_a_protocol_that_is_not_that_of_the_port_is_named(
    cluster: Cluster, protocol: str, plain_port: bool, reason: str
) -> None:
    given = {"KVLENS_KAFKA__SECURITY_PROTOCOL": protocol}
    if plain_port:
        given["KVLENS_KAFKA__BOOTSTRAP_SERVERS"] = cluster.plain
    for command in (["topics", "list"], ["verify"], ["doctor"]):
        code, said = cluster.start("verify", *command, **given).ended()
        assert code in (1, 2)
        assert reason in said, said[-2000:]
        assert "AddressFamily" not in said
        assert "Traceback" not in said


@pytest.mark.night
def test_doctor_says_what_it_was_not_told(cluster: Cluster) -> None:
    with cluster.acls.without("doctor", right_of("doctor", "Describe", "secgroup.replica")):
        _, said = cluster.run("doctor", "doctor")
    assert "kafka-unanswered" in said
    assert "GroupAuthorizationFailed" in said
    with cluster.acls.without("doctor", right_of("doctor", "DescribeConfigs", "sec.events.v1")):
        _, said = cluster.run("doctor", "doctor")
    assert "the configuration of sec.events.v1: TopicAuthorizationFailed" in " ".join(said.split())
