"""Settings from their layers: defaults, then the TOML document, then the environment."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

import msgspec

from schemas.settings import SECRET_KEYS, Replica, Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PREFIX = "KVLENS_"
CONFIG_VARIABLE = "KVLENS_CONFIG"
"""Names the TOML file; not a setting."""

DEFAULT = "default"

_REPLICAS = "replicas"
_NOT_FINITE = "Expected a finite number"
_REPLICAS_VARIABLE = PREFIX + "REPLICAS"
# Kubernetes gives every pod such variables for each Service; a Service called kvlens must not stop us.
_SERVICE_LINK = re.compile(
    r"KVLENS_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


class ConfigurationError(Exception):
    """A setting is unknown or bad; `source` is the file or variable, `problem` names the path inside it."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(source, problem)
        self.source = source
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.source}: {self.problem}"


@dataclass(frozen=True)
class LoadedSettings:
    """The effective settings and where each given one came from."""

    settings: Settings
    origins: Mapping[tuple[str, ...], str]
    """(section, key) or ("replicas",) -> file name or variable; what is absent is a default."""

    def origin(self, *path: str) -> str:
        return self.origins.get(path, DEFAULT)


def load(
    document: str | None,
    document_name: str,
    environment: Mapping[str, str],
    read_secret: Callable[[str], str],
) -> LoadedSettings:
    """Merge the layers.

    `document` is the text of the TOML file; `read_secret` returns the text of a file named by a variable.

    Raises ConfigurationError for unknown keys, bad values, replicas with equal ids and overlapping addresses.
    """
    origins: dict[tuple[str, ...], str] = {}
    settings = Settings()
    if document is not None:
        settings, given = _from_toml(document, document_name)
        origins.update(dict.fromkeys(given, document_name))
    sections: dict[str, dict[str, Any]] = {}
    for variable, path, value in _from_environment(environment, read_secret):
        origins[path] = variable
        if path == (_REPLICAS,):
            settings = msgspec.structs.replace(settings, replicas=value)
        else:
            sections.setdefault(path[0], {})[path[1]] = value
    for section, values in sections.items():
        changed = msgspec.structs.replace(getattr(settings, section), **values)
        settings = msgspec.structs.replace(settings, **{section: changed})
    problem = _replica_problem(settings.replicas)
    if problem is not None:
        raise ConfigurationError(origins.get((_REPLICAS,), DEFAULT), problem)
    return LoadedSettings(settings, origins)


def section_types() -> dict[str, type[msgspec.Struct]]:
    """Section name -> its struct, in the order of `Settings`."""
    return {name: kind for name, kind in get_type_hints(Settings).items() if name != _REPLICAS}


def variable_of(section: str, key: str) -> str:
    """The environment variable of a setting."""
    return f"{PREFIX}{section}__{key}".upper()


def rank_endpoint(endpoint: str, rank: int) -> str:
    """The endpoint of a DP rank, given that of rank 0: rank r listens on port + r."""
    if rank == 0:
        return endpoint
    host, _, port = endpoint.rpartition(":")
    return f"{host}:{int(port) + rank}"


def _from_toml(document: str, name: str) -> tuple[Settings, list[tuple[str, ...]]]:
    try:
        tree = tomllib.loads(document)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(name, f"not valid TOML: {error}") from error
    try:
        settings = msgspec.convert(tree, Settings)
    except msgspec.ValidationError as error:
        raise ConfigurationError(name, str(error)) from error
    given: list[tuple[str, ...]] = []
    for section, values in tree.items():
        if section == _REPLICAS:
            given.append((_REPLICAS,))
            continue
        for key, value in values.items():
            given.append((section, key))
            if not _finite(value):
                raise ConfigurationError(name, f"{_NOT_FINITE} - at `$.{section}.{key}`")
    return settings, given


def _from_environment(
    environment: Mapping[str, str], read_secret: Callable[[str], str]
) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    known = {
        variable_of(section, key): (section, key, hint)
        for section, kind in section_types().items()
        for key, hint in get_type_hints(kind, include_extras=True).items()
    }
    secrets = {variable_of(*path) + "_FILE": path for path in SECRET_KEYS}
    for variable, text in sorted(environment.items()):
        if not variable.startswith(PREFIX) or variable == CONFIG_VARIABLE:
            continue
        if variable == _REPLICAS_VARIABLE:
            yield variable, (_REPLICAS,), _replicas_from_json(text)
        elif variable in secrets:
            section, key = secrets[variable]
            if (plain := variable_of(section, key)) in environment:
                raise ConfigurationError(variable, f"{plain} is set too; keep one of them")
            try:
                yield variable, (section, key), read_secret(text).rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
                raise ConfigurationError(variable, f"cannot read {text}: {reason}") from error
        elif variable in known:
            section, key, hint = known[variable]
            try:
                value = msgspec.convert(text, hint, strict=False)
            except msgspec.ValidationError as error:
                raise ConfigurationError(variable, str(error)) from error
            if not _finite(value):
                raise ConfigurationError(variable, _NOT_FINITE)
            yield variable, (section, key), value
        elif not _SERVICE_LINK.fullmatch(variable):
            raise ConfigurationError(variable, "no such setting; `kvlens config show` lists all of them")


def _finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _replicas_from_json(text: str) -> tuple[Replica, ...]:
    try:
        return msgspec.json.decode(text, type=tuple[Replica, ...])
    except msgspec.DecodeError as error:
        raise ConfigurationError(_REPLICAS_VARIABLE, str(error)) from error


def _replica_problem(replicas: tuple[Replica, ...]) -> str | None:
    """What is wrong with the replicas taken together, with its path; None when nothing is."""
    ids: set[str] = set()
    taken: dict[str, str] = {}
    for number, replica in enumerate(replicas):
        path = f"$.replicas[{number}]"
        if replica.id in ids:
            return f"replica id {replica.id!r} is used twice - at `{path}.id`"
        ids.add(replica.id)
        for key in ("endpoint", "replay_endpoint"):
            endpoint = getattr(replica, key)
            if endpoint is None:
                continue
            addresses = _rank_addresses(endpoint, replica.dp_ranks)
            if isinstance(addresses, str):
                return f"{addresses} - at `{path}.{key}`"
            for address in addresses:
                if address in taken:
                    return f"{address} is also an address of {taken[address]} - at `{path}.{key}`"
            taken.update(dict.fromkeys(addresses, f"`{path}.{key}`"))
    return None


def _rank_addresses(endpoint: str, dp_ranks: int) -> list[str] | str:
    """One address per rank, or the problem."""
    if endpoint.startswith("ipc://"):
        return [endpoint] if dp_ranks == 1 else "DP ranks need a tcp endpoint (rank r listens on port + r)"
    host, colon, port = endpoint.removeprefix("tcp://").rpartition(":")
    if not (colon and host and port.isdecimal() and 1 <= int(port) <= 65535):
        return f"expected tcp://host:port with a port from 1 to 65535, got {endpoint}"
    if int(port) + dp_ranks - 1 > 65535:
        return f"rank {dp_ranks - 1} would have port {int(port) + dp_ranks - 1}, above 65535"
    return [rank_endpoint(endpoint, rank) for rank in range(dp_ranks)]
