"""The broker's jars: fetched by jgo from Maven coordinates, verified against the lock before every start."""

from __future__ import annotations

import hashlib
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec
from jgo.config import GlobalSettings
from jgo.constants import MAVEN_CENTRAL_URL
from jgo.maven import MavenContext, PythonResolver

from connectors.process.leaving import start_aside
from pipeline.errors import PipelineError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LOCK = Path(__file__).with_name("kafka.lock.toml")
_PAUSES_SECONDS = (1.0, 3.0)
"""Before a download that failed is tried again."""
_DOWNLOADS = 6
_DEBIAN_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


class Jar(msgspec.Struct, frozen=True):
    """One locked jar: Maven coordinates and the sha256 of its content (hex)."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> Path:
        """Where a Maven repository keeps it."""
        return Path(*self.group.split("."), self.artifact, self.version, self.file_name)


class Lock(msgspec.Struct, frozen=True):
    """The lock file: `endpoint` is what was resolved, `jars` everything that it needs to run."""

    endpoint: str
    jars: list[Jar]


class JarsUnavailable(PipelineError):
    """A jar could not be fetched, or what was fetched is not what the lock says."""

    jar: str
    reason: str
    line = (
        "cannot get {jar} for the embedded broker: {reason}; check the network "
        "(or name a Maven mirror in jgo's config file), or use a broker of your own"
    )


def read_lock(path: Path = LOCK) -> Lock:
    return msgspec.convert(tomllib.loads(path.read_text()), Lock)


def verified_jars(lock: Lock, fallback: Path, progress: Callable[[str], None]) -> list[Path]:
    """Return the paths of all jars, each with the locked content; download the missing ones first.

    They live in the user's Maven repository (jgo's settings and M2_REPO are honoured), or below `fallback`
    where that cannot be written. `progress` gets a step for each download. Raises JarsUnavailable.
    """
    settings = GlobalSettings.load()
    repository = settings.repo_cache
    missing = [jar for jar in lock.jars if not _matches(repository / jar.path, jar)]
    if missing and not _writable(repository):
        repository = fallback
        missing = [jar for jar in lock.jars if not _matches(repository / jar.path, jar)]
    if missing:
        repository.mkdir(parents=True, exist_ok=True)
        fetching = f"fetching {len(missing)} of Kafka's {len(lock.jars)} jars, at the first start only"
        progress(fetching)
        # A jar is fetched into a temporary directory, verified, then moved: neither a download that is cut
        # short nor another start at the same time leaves half a jar in the user's repository.
        with (
            tempfile.TemporaryDirectory(
                prefix=".kvlens-", dir=repository, ignore_cleanup_errors=True
            ) as scratch,
            _trusted_certificates(),
        ):
            context = MavenContext(
                resolver=PythonResolver(),
                repo_cache=Path(scratch),
                remote_repos={"central": MAVEN_CENTRAL_URL, **settings.repositories},
                timeout=30,
            )
            fetched = _side_by_side(lambda jar: _fetch(context, jar, repository), missing)
            for number, jar in enumerate(fetched, 1):
                progress(f"{fetching}: {number} {jar.file_name}")
    return [repository / jar.path for jar in lock.jars]


def _fetch(context: MavenContext, jar: Jar, repository: Path) -> Jar:
    fetched = _downloaded(context, jar)
    if not _matches(fetched, jar):
        raise JarsUnavailable(jar.file_name, "the content differs from the lock")
    target = repository / jar.path
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(fetched, target)
    return jar


def _downloaded(context: MavenContext, jar: Jar) -> Path:
    pauses = iter(_PAUSES_SECONDS)
    while True:
        try:
            component = context.project(jar.group, jar.artifact).at_version(jar.version)
            return Path(component.artifact().resolve())
        except Exception as error:  # jgo lets requests, urllib3 and its own errors through
            if (pause := next(pauses, None)) is None:
                raise JarsUnavailable(jar.file_name, str(error)) from error
            time.sleep(pause)


@contextmanager
def _trusted_certificates() -> Iterator[None]:
    """Let `requests` trust what the system trusts, as pip does: networks with their own CA need it."""
    bundle = ssl.get_default_verify_paths().cafile or _DEBIAN_BUNDLE
    if os.environ.keys() & {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"} or not os.path.exists(bundle):
        yield
        return
    os.environ["REQUESTS_CA_BUNDLE"] = bundle
    try:
        yield
    finally:
        del os.environ["REQUESTS_CA_BUNDLE"]


def _side_by_side(fetch: Callable[[Jar], Jar], jars: Sequence[Jar]) -> Iterator[Jar]:
    """Fetch jars in parallel and yield each when it is there; raises the first error.

    A caller that stops iterating, as at Ctrl-C, does not wait for downloads that hang.
    """
    waiting: SimpleQueue[Jar] = SimpleQueue()
    for jar in jars:
        waiting.put(jar)
    outcomes: SimpleQueue[Jar | Exception] = SimpleQueue()

    def run() -> None:
        with suppress(Empty):
            while True:
                jar = waiting.get_nowait()
                try:
                    outcomes.put(fetch(jar))
                except Exception as error:
                    outcomes.put(error)

    for _ in range(_DOWNLOADS):
        start_aside(run)
    try:
        for _ in jars:
            outcome = outcomes.get()
            if isinstance(outcome, Exception):
                raise outcome
            yield outcome
    finally:
        with suppress(Empty):
            while True:
                waiting.get_nowait()


def _matches(path: Path, jar: Jar) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256
    except OSError:
        return False


def _writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)
