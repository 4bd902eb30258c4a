"""`kvlens config show`: the effective settings as TOML, each with its origin."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import tomlkit
from tomlkit.items import AoT, Item

from connectors.process.addresses import HIDDEN, without_secrets
from pipeline.cli.groups import Group, examples
from pipeline.cli.options import config_option, load_settings
from pipeline.settings.loading import DEFAULT, LoadedSettings, list_types, section_types
from schemas.settings import SECRET_KEYS


@click.group(cls=Group, epilog=examples("kvlens config show --config kvlens.toml"))
def config() -> None:
    """Show the settings in effect."""


@config.command(epilog=examples("kvlens config show", "KVLENS_KAFKA__GROUP=mine kvlens config show --json"))
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object: settings and origins.")
def show(config: Path | None, as_json: bool) -> None:
    """Print the settings in effect as TOML.

    A comment names the file or variable that a value came from. Secrets are hidden, also user,
    password and query of an address.
    """
    loaded = load_settings(config)
    click.echo(json.dumps(as_object(loaded), indent=2) + "\n" if as_json else as_toml(loaded), nl=False)


def as_object(loaded: LoadedSettings) -> dict[str, Any]:
    """Return a JSON-ready object: the settings, and the origins of those that are not defaults."""
    settings = _without_secrets(msgspec.to_builtins(loaded.settings))
    for section, key in SECRET_KEYS:
        if settings[section][key]:
            settings[section][key] = HIDDEN
    return {
        "settings": settings,
        "origins": {".".join(path): origin for path, origin in loaded.origins.items()},
    }


def as_toml(loaded: LoadedSettings) -> str:
    """Return the settings as the text of a kvlens.toml; what is None is left out, as TOML has no null."""
    document = tomlkit.document()
    for section in section_types():
        table = tomlkit.table()
        lists: dict[str, AoT] = {}
        for key, value in msgspec.structs.asdict(getattr(loaded.settings, section)).items():
            origin = loaded.origin(section, key)
            if isinstance(value, tuple):
                if value:
                    lists[key] = _tables(value, origin)
            else:
                shown = HIDDEN if (section, key) in SECRET_KEYS and value else _without_secrets(value)
                table.add(key, _commented(tomlkit.item(shown), origin))
        for key, tables in lists.items():
            table.add(key, tables)
        document.add(section, table)
    for name in list_types():
        if structs := getattr(loaded.settings, name):
            document.add(name, _tables(structs, loaded.origin(name)))
    return tomlkit.dumps(document)


def _without_secrets(value: Any) -> Any:
    """Return a value with the secrets of its addresses hidden."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {key: _without_secrets(each) for key, each in value.items()}
    return [_without_secrets(each) for each in value] if isinstance(value, list | tuple) else value


def _tables(structs: Sequence[msgspec.Struct], origin: str) -> AoT:
    array = tomlkit.aot()
    for struct in structs:
        table = tomlkit.table()
        for key, value in msgspec.structs.asdict(struct).items():
            if value is not None:
                table.add(key, _without_secrets(value))
        array.append(_commented(table, origin))
    return array


def _commented(item: Item, origin: str) -> Item:
    if origin != DEFAULT:
        item.comment(origin)
        item.trivia.comment_ws = "  "
    return item
