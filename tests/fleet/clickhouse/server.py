"""A real ClickHouse server on loopback: its HTTP interface, its native protocol, its users and rights."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

NODE = Path(__file__).with_name("node.py")
START_SECONDS = 120.0


class User(NamedTuple):
    """`grants`: statements after GRANT, without TO; None for all rights. `profile`: settings by name.

    Of the settings in `changeable` a user whose profile is read-only may choose other values.
    """

    name: str
    password: str = ""
    grants: Sequence[str] | None = None
    profile: Mapping[str, str] = {}
    changeable: Sequence[str] = ()


ADMINISTRATOR = User("default")


class ClickHouseServer:
    """Its data in `directory` survive stop, kill and restart."""

    def __init__(
        self,
        library: Path,
        directory: Path,
        port: int,
        tcp_port: int,
        *,
        users: Sequence[User] = (ADMINISTRATOR,),
        more: str = "",
    ) -> None:
        """`more`: XML of the server's settings, such as clusters and macros."""
        self.directory = directory
        self.port = port
        self.tcp_port = tcp_port
        self.url = f"http://127.0.0.1:{port}"
        self.log = directory / "server.log"
        self._library = library
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        users_file = directory / "users.xml"
        users_file.write_text(_users(users))
        (directory / "config.xml").write_text(
            "<clickhouse><listen_host>127.0.0.1</listen_host>"
            f"<http_port>{port}</http_port><tcp_port>{tcp_port}</tcp_port>"
            f"<users_config>{escape(str(users_file))}</users_config>{more}</clickhouse>"
        )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def ready(self) -> bool:
        """Whether it answers /ping."""
        try:
            with urllib.request.urlopen(f"{self.url}/ping", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:  # urllib's errors are such
            return False

    def start(self) -> None:
        """Block until it is ready."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(NODE), str(self._library), str(self.directory)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.ready:
            if not self.running or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"ClickHouse did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """End it at once, as a lost node does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None

    def end(self) -> None:
        """End it in order, so that its connections are closed and not reset."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        process.wait(START_SECONDS)
        self._process = None


def _users(users: Sequence[User]) -> str:
    return (
        f"<clickhouse><profiles>{''.join(map(_profile, users))}</profiles>"
        "<quotas><default/></quotas>"
        f"<users>{''.join(map(_user, users))}</users></clickhouse>"
    )


def _profile(user: User) -> str:
    values = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in user.profile.items())
    free = "".join(f"<{name}><changeable_in_readonly/></{name}>" for name in user.changeable)
    return f"<{user.name}>{values}<constraints>{free}</constraints></{user.name}>"


def _user(user: User) -> str:
    digest = hashlib.sha256(user.password.encode()).hexdigest()
    secret = f"<password_sha256_hex>{digest}</password_sha256_hex>" if user.password else "<password/>"
    grants = ""
    if user.grants is not None:
        queries = "".join(f"<query>GRANT {escape(grant)}</query>" for grant in user.grants)
        grants = f"<grants>{queries}</grants>"
    return (
        f"<{user.name}>{secret}<networks><ip>127.0.0.1</ip></networks><profile>{user.name}</profile>"
        f"<quota>default</quota>{grants}</{user.name}>"
    )
