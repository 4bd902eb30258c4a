"""Three brokers as a company runs them: TLS, passwords or certificates, rights, every record three times.

A user `name` logs on with the password `name-word` at one listener, or with a certificate of that CN at the
other. `admin` may do everything.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from connectors.kafka.reach import reach
from connectors.kafka.security import client_options
from connectors.process.errors import OperatorError
from pipeline.local.broker.embedded import java_command
from pipeline.local.broker.jars import read_lock, verified_jars
from pipeline.local.broker.properties import properties_text, server_properties
from pipeline.local.processes.child_process import ChildProcess
from schemas.settings import Kafka
from tests.fleet.kafka.certificates import Authority

NODES = (1, 2, 3)
ADMIN = "admin"
START_SECONDS = 180.0
STOP_SECONDS = 60.0
_JVM = ("-Xmx192m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")


class Brokers:
    """Three nodes, broker and controller each, on 127.0.0.1; they can be killed and stopped one by one."""

    def __init__(self, directory: Path, free_port: Callable[..., int], users: Sequence[str]) -> None:
        self.directory = directory
        self.authority = Authority(directory / "certificates")
        self._store = self.authority.key_store("broker")
        self._users = (ADMIN, *users)
        self._ports = {
            node: {name: free_port() for name in ("PASSWORD", "CERTIFICATE", "CONTROLLER")} for node in NODES
        }
        self._nodes = {
            node: ChildProcess(f"broker {node}", directory / str(node), directory / f"broker-{node}.log")
            for node in NODES
        }
        self._environment: dict[str, str] = {}

    def start(self) -> None:
        """Format the storage of all and start them; return when each answers."""
        jars = verified_jars(read_lock(), self.directory / "jars", lambda line: None)
        self._environment = {"CLASSPATH": os.pathsep.join(map(str, jars))}
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "_")
        _side_by_side(lambda node: self._format(node, cluster), NODES)
        for node in NODES:
            self.launch(node)
        self.wait_ready()

    def launch(self, node: int) -> None:
        process = self._nodes[node]
        process.claim()
        server = [*java_command(), *_JVM, *_LOGGING, "kafka.Kafka", str(self._settings(node))]
        process.spawn(server, self._environment)

    def wait_ready(self) -> None:
        """Return when all three are in the cluster, and every partition has all its copies in sync."""
        deadline = time.monotonic() + START_SECONDS
        while (lacking := self.lacking()) is not None:
            for node, process in self._nodes.items():
                assert process.running, (node, process.log.read_text()[-3000:])
            assert time.monotonic() < deadline, lacking
            time.sleep(0.3)

    def lacking(self) -> str | None:
        """Return what keeps the cluster from being whole; None when it is."""
        return asyncio.run(self._lacking())

    async def _lacking(self) -> str | None:
        login = self.login(ADMIN)
        for address in login.bootstrap_servers.split(","):
            try:
                # The others take one for alive that was killed a moment ago.
                await reach(msgspec.structs.replace(login, bootstrap_servers=address))
            except OperatorError as error:
                return str(error)
        admin = AIOKafkaAdminClient(request_timeout_ms=10_000, **client_options(login))
        try:
            await admin.start()
            cluster = await admin.describe_cluster()
            if len(cluster["brokers"]) < len(NODES):
                return f"{len(cluster['brokers'])} of {len(NODES)} brokers"
            for topic in await admin.describe_topics():
                for partition in topic["partitions"]:
                    if len(partition["isr"]) < len(partition["replicas"]):
                        return f"{topic['topic']}[{partition['partition']}] in sync: {partition['isr']}"
        except (KafkaError, OSError) as error:
            return repr(error)
        finally:
            await admin.close()
        return None

    def kill(self, node: int) -> None:
        """SIGKILL."""
        self._nodes[node].kill()

    def stop(self, node: int) -> None:
        """As `kill PID` does: it hands its partitions over first."""
        self._nodes[node].stop(STOP_SECONDS)

    def signal(self, node: int, number: int) -> None:
        self._nodes[node].signal(number)

    def close(self) -> None:
        for process in self._nodes.values():
            process.kill()

    def login(self, user: str, *, password: str | None = None) -> Kafka:
        """Return the settings of a user who has a password."""
        return Kafka(
            bootstrap_servers=self.addresses("PASSWORD"),
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username=user,
            sasl_password=f"{user}-word" if password is None else password,
            ssl_cafile=str(self.authority.ca),
        )

    def configure(self, *arguments: str) -> None:
        """Change what the cluster keeps, with Kafka's own tool: passwords, and the settings of brokers."""
        login = self.directory / "admin.properties"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        login.write_text(
            properties_text(
                {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": "SCRAM-SHA-512",
                    "sasl.jaas.config": f'{module} required username="{ADMIN}" password="{ADMIN}-word";',
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": str(self.authority.ca),
                }
            )
        )
        done = subprocess.run(
            [
                *(*java_command(), *_JVM, "kafka.admin.ConfigCommand", "--alter", *arguments),
                *("--bootstrap-server", self.addresses("PASSWORD"), "--command-config", str(login)),
            ],
            env={**os.environ, **self._environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.returncode, done.stdout + done.stderr

    def addresses(self, listener: str) -> str:
        return ",".join(f"127.0.0.1:{self._ports[node][listener]}" for node in NODES)

    def variables(
        self,
        user: str,
        *,
        by_certificate: bool = False,
        directory: Path | None = None,
        password_file: Path | None = None,
    ) -> dict[str, str]:
        """Return the same as environment of a process of kvlens; `directory` gets a new certificate."""
        variables = {"SSL_CAFILE": str(self.authority.ca)}
        if by_certificate:
            certificate, key = self.authority.sign(user, directory)
            variables |= {
                "BOOTSTRAP_SERVERS": self.addresses("CERTIFICATE"),
                "SECURITY_PROTOCOL": "SSL",
                "SSL_CERTFILE": str(certificate),
                "SSL_KEYFILE": str(key),
            }
        else:
            variables |= {
                "BOOTSTRAP_SERVERS": self.addresses("PASSWORD"),
                "SECURITY_PROTOCOL": "SASL_SSL",
                "SASL_MECHANISM": "SCRAM-SHA-512",
                "SASL_USERNAME": user,
                **(
                    {"SASL_PASSWORD": f"{user}-word"}
                    if password_file is None
                    else {"SASL_PASSWORD_FILE": str(password_file)}
                ),
            }
        return {f"KVLENS_KAFKA__{name}": value for name, value in variables.items()}

    def _settings(self, node: int) -> Path:
        file = self.directory / str(node) / "server.properties"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(properties_text(self._properties(node)))
        return file

    def _properties(self, node: int) -> Mapping[str, str]:
        ports = self._ports[node]
        plain = server_properties(
            self.directory / str(node) / "data", "127.0.0.1", ports["PASSWORD"], ports["CONTROLLER"]
        )
        listeners = {name: f"{name}://127.0.0.1:{port}" for name, port in ports.items()}
        return {
            **plain,
            "node.id": str(node),
            "controller.quorum.voters": ",".join(
                f"{each}@127.0.0.1:{self._ports[each]['CONTROLLER']}" for each in NODES
            ),
            "listeners": ",".join(listeners.values()),
            "advertised.listeners": f"{listeners['PASSWORD']},{listeners['CERTIFICATE']}",
            "inter.broker.listener.name": "CERTIFICATE",
            "listener.security.protocol.map": "PASSWORD:SASL_SSL,CERTIFICATE:SSL,CONTROLLER:SSL",
            "listener.name.password.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.password.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.certificate.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.ca),
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/,DEFAULT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:broker;User:{ADMIN}",
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            # Three brokers share two cores with everything else.
            "broker.session.timeout.ms": "9000",
            "broker.heartbeat.interval.ms": "1000",
            "controller.quorum.election.timeout.ms": "5000",
            "controller.quorum.fetch.timeout.ms": "10000",
        }

    def _format(self, node: int, cluster: str) -> None:
        users = [
            argument
            for user in self._users
            for argument in (
                "--add-scram",
                f"SCRAM-SHA-512=[name={user},iterations=4096,password={user}-word]",
            )
        ]
        done = subprocess.run(
            [
                *(*java_command(), *_JVM, "kafka.tools.StorageTool", "format"),
                *("--config", str(self._settings(node)), "--cluster-id", cluster, *users),
            ],
            env={**os.environ, **self._environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.returncode, done.stdout + done.stderr


def _side_by_side(work: Callable[[int], None], nodes: Iterable[int]) -> None:
    failed: list[BaseException] = []

    def run(node: int) -> None:
        try:
            work(node)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
