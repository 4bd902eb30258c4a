"""`kvlens config show`: the effective settings as TOML, each with its origin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
import tomlkit
from tomlkit.items import AoT, Item

from pipeline.cli.options import config_option, load_settings
from pipeline.settings.loading import DEFAULT, LoadedSettings, list_types, section_types
from schemas.settings import SECRET_KEYS

HIDDEN = "********"


@click.group
def config() -> None:
    """Show the effective settings."""


@config.command
@config_option
def show(config: Path | None) -> None:
    """Print the effective settings as TOML; secrets are hidden, a comment names where a value came from."""
    click.echo(as_toml(load_settings(config)), nl=False)


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
                shown = HIDDEN if (section, key) in SECRET_KEYS and value else value
                table.add(key, _commented(tomlkit.item(shown), origin))
        for key, tables in lists.items():
            table.add(key, tables)
        document.add(section, table)
    for name in list_types():
        if structs := getattr(loaded.settings, name):
            document.add(name, _tables(structs, loaded.origin(name)))
    return tomlkit.dumps(document)


def _tables(structs: Sequence[msgspec.Struct], origin: str) -> AoT:
    array = tomlkit.aot()
    for struct in structs:
        table = tomlkit.table()
        for key, value in msgspec.structs.asdict(struct).items():
            if value is not None:
                table.add(key, value)
        array.append(_commented(table, origin))
    return array


def _commented(item: Item, origin: str) -> Item:
    if origin != DEFAULT:
        item.comment(origin)
        item.trivia.comment_ws = "  "
    return item
