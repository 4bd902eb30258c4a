"""Settings from their layers: defaults, then the TOML document, then the environment."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_origin, get_type_hints

import msgspec

from connectors.process.errors import DataError
from pipeline.settings.explain import explained, nearest
from pipeline.settings.validation import Path, leaves, settings_problem, written
from schemas.settings import SECRET_KEYS, Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PREFIX = "KVLENS_"
CONFIG_VARIABLE = "KVLENS_CONFIG"
"""Names the TOML file; not a setting."""
LOG_LEVEL_VARIABLE = "KVLENS_LOG_LEVEL"
"""Level of a process's logs; not a setting, because processes of one fleet differ in it."""

DEFAULT = "default"

_NOT_FINITE = "expected a finite number"
# Kubernetes gives every pod such variables for each Service; a Service called kvlens must not stop us.
_SERVICE_LINK = re.compile(
    r"KVLENS_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_URL = re.compile(r"KVLENS_([A-Z0-9_]+_)?PORT=(tcp|udp|sctp)://.*")
"""A number instead is a setting of ours, misspelt."""


class ConfigurationError(DataError):
    """A setting is unknown or bad; `origin` is the file or variable, `problem` names the key inside it."""

    origin: str
    problem: str
    line = "{origin}: {problem}"


@dataclass(frozen=True)
class LoadedSettings:
    """The effective settings and where each given one came from."""

    settings: Settings
    origins: Mapping[tuple[str, ...], str]
    """(section, key), or (list,) as ("replicas",) -> file name or variable; what is absent is a default."""

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

    Raises ConfigurationError for unknown keys, bad values and settings that clash.
    """
    origins: dict[tuple[str, ...], str] = {}
    settings = Settings()
    if document is not None:
        settings, given = _from_toml(document, document_name)
        origins.update(dict.fromkeys(given, document_name))
    sections: dict[str, dict[str, Any]] = {}
    for variable, path, value in _from_environment(environment, read_secret):
        origins[path] = variable
        if len(path) == 1:
            settings = msgspec.structs.replace(settings, **{path[0]: value})
        else:
            sections.setdefault(path[0], {})[path[1]] = value
    for section, values in sections.items():
        changed = msgspec.structs.replace(getattr(settings, section), **values)
        settings = msgspec.structs.replace(settings, **{section: changed})
    problem = settings_problem(settings)
    if problem is not None:
        raise ConfigurationError(origins.get(problem.path, DEFAULT), explained(problem.text, Settings))
    return LoadedSettings(settings, origins)


def section_types() -> dict[str, type[msgspec.Struct]]:
    """Return {section: its struct}, in the order of `Settings`."""
    return {name: kind for name, kind in get_type_hints(Settings).items() if get_origin(kind) is not tuple}


def list_types() -> dict[str, Any]:
    """Return {name of a list of blocks: its type}, in the order of `Settings`."""
    return {name: kind for name, kind in get_type_hints(Settings).items() if get_origin(kind) is tuple}


def variable_of(section: str, key: str) -> str:
    """Return the environment variable of a setting."""
    return f"{PREFIX}{section}__{key}".upper()


def _from_toml(document: str, name: str) -> tuple[Settings, list[tuple[str, ...]]]:
    try:
        tree = tomllib.loads(document)
    except (ValueError, RecursionError) as error:  # also numbers of very many digits
        raise ConfigurationError(name, f"not valid TOML: {error}") from error
    try:
        settings = msgspec.convert(tree, Settings)
    except msgspec.ValidationError as error:
        raise ConfigurationError(name, explained(str(error), Settings)) from error
    given: list[tuple[str, ...]] = []
    if (path := _not_finite(tree)) is not None:
        raise ConfigurationError(name, explained(f"{_NOT_FINITE} - at `{written(path)}`", Settings))
    for section, values in tree.items():
        given += [(section,)] if section in list_types() else [(section, key) for key in values]
    return settings, given


def _from_environment(
    environment: Mapping[str, str], read_secret: Callable[[str], str]
) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    known: dict[str, tuple[tuple[str, ...], Any]] = {
        variable_of(section, key): ((section, key), hint)
        for section, kind in section_types().items()
        for key, hint in get_type_hints(kind, include_extras=True).items()
    }
    known |= {f"{PREFIX}{name}".upper(): ((name,), kind) for name, kind in list_types().items()}
    secrets = {variable_of(*path) + "_FILE": path for path in SECRET_KEYS}
    for variable, text in sorted(environment.items()):
        if not variable.startswith(PREFIX) or variable in (CONFIG_VARIABLE, LOG_LEVEL_VARIABLE):
            continue
        if variable in secrets:
            section, key = secrets[variable]
            if (plain := variable_of(section, key)) in environment:
                raise ConfigurationError(variable, f"{plain} is set too; keep one of them")
            try:
                yield variable, (section, key), read_secret(text).rstrip("\r\n")
                if variable in known:
                    # The path as well: users of the secret read the file again when it changes.
                    yield variable, (section, key + "_file"), text
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
                raise ConfigurationError(variable, f"cannot read {text}: {reason}") from error
        elif variable in known:
            path, hint = known[variable]
            try:
                value = _from_text(text, hint)
            except msgspec.DecodeError as error:
                raise ConfigurationError(variable, explained(str(error), hint)) from error
            except UnicodeEncodeError as error:
                raise ConfigurationError(variable, "not UTF-8 text") from error
            if _not_finite(value) is not None:
                raise ConfigurationError(variable, _NOT_FINITE)
            yield variable, path, value
        elif not (_SERVICE_LINK.fullmatch(variable) or _SERVICE_URL.fullmatch(f"{variable}={text}")):
            advice = nearest(variable, [*known, *secrets]) or "; `kvlens config show` lists all of them"
            raise ConfigurationError(variable, f"no such setting{advice}")


def _from_text(text: str, hint: Any) -> Any:
    """Convert the text of a variable; a list comes as a JSON array."""
    if get_origin(hint) is tuple:
        return msgspec.json.decode(text, type=hint)
    return msgspec.convert(text, hint, strict=False)


def _not_finite(value: Any) -> Path | None:
    """Return where a value first has an infinite number, or one that is none."""
    odd = (path for path, leaf in leaves(value) if isinstance(leaf, float) and not math.isfinite(leaf))
    return next(odd, None)
