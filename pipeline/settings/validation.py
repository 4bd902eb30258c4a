"""Finds the problems of settings that are each of the right type: clashes, what needs another key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from connectors.process.addresses import MAX_PORT, printable
from pipeline.settings.clashes import (
    bind_problems,
    dns_problems,
    kubernetes_problems,
    model_problems,
    prefix_problems,
    replica_problem,
)
from schemas.settings import SECRET_KEYS, KafkaLogin, Settings, shard_numbers

Path = tuple[str | int, ...]
"""Keys, and numbers in lists."""

MAX_MODEL = 200
"""Characters of a model's name."""
_SERVER = re.compile(r"(?:\[[\w:.%]+\]|[\w.-]+)(?::(\d{1,5}))?|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
"""host, host:port, [address]:port; without brackets an IPv6 address has no port."""
_FILES = ("file", "directory")
"""Ends of the keys that name files, which may have any characters."""
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True)
class SettingsProblem:
    """`text` names the path inside the document."""

    path: tuple[str, ...]
    """("replicas",) or (section, key), to look up where it came from."""
    text: str


def settings_problem(settings: Settings) -> SettingsProblem | None:
    """Return the first problem; None when there is none."""
    return _unprintable(settings) or next(_problems(settings), None)


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the values in tables and lists, however deep, each with its path."""
    parts: Iterable[tuple[Any, Any]]
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, (list, tuple)):
        parts = enumerate(value)
    else:
        yield path, value
        return
    for key, one in parts:
        yield from leaves(one, (*path, key))


def written(path: Path) -> str:
    """Return a path as msgspec writes it: `$.replicas[0].id`."""
    return "$" + "".join(f".{part}" if isinstance(part, str) else f"[{part}]" for part in path)


def _unprintable(settings: Settings) -> SettingsProblem | None:
    """Return the first text with a character that cannot be printed; files and secrets may have any."""
    for path, text in leaves(msgspec.to_builtins(settings)):
        named = tuple(part for part in path if isinstance(part, str))
        if not isinstance(text, str) or text.isprintable():
            continue
        if named[-1].endswith(_FILES) or named in SECRET_KEYS:
            continue
        shown = printable(text)[:_SHOWN_CHARACTERS]
        origin = named[:1] if isinstance(path[1], int) else named[:2]
        return SettingsProblem(origin, f"a control character in '{shown}' - at `{written(path)}`")
    return None


def _problems(settings: Settings) -> Iterator[SettingsProblem]:
    yield from _of_shares(settings)
    yield from _of_forwarding(settings)
    yield from _of_login("kafka", settings.kafka)
    yield from _of_store(settings)
    yield from _of_lmcache(settings)
    discovery, replicas = settings.discovery, replica_problem(settings.replicas)
    lists: dict[tuple[str, ...], Iterable[str]] = {
        ("models",): model_problems(settings.models),
        ("prefixes",): prefix_problems(settings.prefixes),
        ("replicas",): () if replicas is None else (replicas,),
        ("discovery", "dns"): dns_problems(discovery),
        ("discovery", "kubernetes"): kubernetes_problems(discovery),
        ("discovery", "bind"): bind_problems(discovery),
    }
    for path, texts in lists.items():
        yield from (SettingsProblem(path, text) for text in texts)


def _problem(section: str, key: str, text: str, at: str = "") -> SettingsProblem:
    """Return the problem of a key; `at` is the key of its section to change, if that is another one."""
    return SettingsProblem((section, key), f"{text} - at `$.{section}.{at or key}`")


def _of_shares(settings: Settings) -> Iterator[SettingsProblem]:
    try:
        shard_numbers(settings.connector.shard)
    except ValueError as error:
        yield _problem("connector", "shard", str(error))
    try:
        number, _ = shard_numbers(settings.index.share)
    except ValueError as error:
        yield _problem("index", "share", str(error))
    else:
        if number >= settings.kafka.partitions:
            text = f"of {settings.kafka.partitions} partitions none is left for share {number}"
            yield _problem("index", "share", text)


def _of_forwarding(settings: Settings) -> Iterator[SettingsProblem]:
    for key, forwarded in (("forward_session_ids", "session ids"), ("forward_salts", "salts")):
        if getattr(settings.connector, key) and not settings.connector.session_key_file:
            text = f"{forwarded} leave as keyed hashes only, which needs a session_key_file"
            yield _problem("connector", key, text)


def _of_login(section: str, login: KafkaLogin) -> Iterator[SettingsProblem]:
    if (text := _bootstrap_problem(login.bootstrap_servers)) is not None:
        yield _problem(section, "bootstrap_servers", text)
    if login.sasl_mechanism == "OAUTHBEARER" and not login.sasl_token_file:
        text = "OAUTHBEARER needs the file of its token"
        yield _problem(section, "sasl_mechanism", text, at="sasl_token_file")


def _of_store(settings: Settings) -> Iterator[SettingsProblem]:
    store = settings.clickhouse
    if store.engines != "plain" and not store.cluster:
        yield _problem("clickhouse", "engines", f"{store.engines!r} needs clickhouse.cluster")
    if store.url:
        if (text := store_address_problem(store.url)) is not None:
            yield _problem("clickhouse", "url", text)
    elif not settings.kafka.figures:
        yield _problem("kafka", "figures", "without clickhouse.url figures are all that workers write")


def _of_lmcache(settings: Settings) -> Iterator[SettingsProblem]:
    lmcache = settings.lmcache
    if (lmcache.topic or lmcache.port) and not lmcache.model_names:
        yield _problem("lmcache", "models", "name the models of the servers")
    if any(len(name) > MAX_MODEL for name in lmcache.model_names):
        yield _problem("lmcache", "models", f"expected names of at most {MAX_MODEL} characters")
    yield from _of_login("lmcache_kafka", settings.lmcache_kafka)


def _bootstrap_problem(servers: str) -> str | None:
    for server in servers.split(","):
        found = _SERVER.fullmatch(server.strip())
        if found is None or (found[1] is not None and not 1 <= int(found[1]) <= MAX_PORT):
            return f"expected host:port, or several with commas, ports from 1 to {MAX_PORT}, got {servers!r}"
    return None


def store_address_problem(url: str) -> str | None:
    """Return why an address is not valid, or which part would be ignored, without secrets; None if fine."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # bad brackets, or a port that is no number or too large
        return f"expected http://host:port or https://host:port, with a port from 1 to {MAX_PORT}"
    if "@" in parts.netloc:
        return "an address has no login: name it in clickhouse.username and clickhouse.password_file"
    if parts.query or parts.fragment:
        return (
            "an address has neither ? nor #: a login goes into clickhouse.username and "
            "clickhouse.password_file, the database into clickhouse.database"
        )
    if not parts.hostname or port == 0:
        return f"expected http://host:port or https://host:port, with a port from 1 to {MAX_PORT}"
    return None
