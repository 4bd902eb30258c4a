"""docs/configuration.md: every key, its type, bounds, default, meaning, and how its variable is made."""

from __future__ import annotations

import json

import msgspec
from msgspec.inspect import (
    BoolType,
    Field,
    FloatType,
    IntType,
    LiteralType,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

import schemas.discovery_settings
import schemas.settings
from pipeline.generated.pages.markdown import code, fenced, page, table
from pipeline.generated.source_docs import attribute_docs, one_line
from schemas.settings import SECRET_KEYS, Settings

DOCS = attribute_docs(schemas.settings, schemas.discovery_settings)

INTRODUCTION = """\
kvlens reads one TOML file, `kvlens.toml`. The smallest useful one names the engines:"""

SMALLEST = """\
[[replicas]]
id = "vllm-0"
model = "qwen3-32b"
endpoint = "tcp://127.0.0.1:5557"
"""

RULES = """\
- **Environment.** Every key can come from the environment, which wins over the file:
  `KVLENS_KAFKA__BOOTSTRAP_SERVERS` is `bootstrap_servers` of `[kafka]`. Lists of blocks are JSON arrays, all
  replicas together `KVLENS_REPLICAS`. `KVLENS_CONFIG` names the file.
- **Secrets** (marked below) can also come from a file: add `_FILE` to the variable and give the path. Keys
  of hashes have at least 16 bytes, tokens 16 characters.
- **Mistakes stop the command**, with the path of the key. `kvlens config show` prints the settings that a
  process would use, without secrets.

Lengths of texts are in characters."""
AS_KAFKA = "lmcache_kafka"
"""A section whose keys are those of `[kafka]`."""
LIKE_A_REPLICA = "Like that of a replica."
WORDS = {r"^(https?://[^/?#@\s]+(/[^?#@\s]*)?)?$": "empty, or a URL without login and query"}
"""Patterns that say less than their words."""


def settings_page() -> bytes:
    """Return the page."""
    info = type_info(Settings)
    assert isinstance(info, StructType)
    blocks = [INTRODUCTION, fenced("toml", SMALLEST), RULES]
    for section in info.fields:
        if isinstance(section.type, StructType):
            blocks += [
                f"## [{section.name}]",
                one_line(section.type.cls.__doc__),
                _as_kafka(section.type) if section.name == AS_KAFKA else _section(section.name, section.type),
            ]
            for field in section.type.fields:
                if (block := _repeated(field.type)) is not None:
                    heading = f"### [[{section.name}.{field.name}]]"
                    blocks += [heading, one_line(block.cls.__doc__), _block(block)]
    for section in info.fields:
        if (block := _repeated(section.type)) is not None:
            name = section.name
            introduction = f"{one_line(block.cls.__doc__)} One `[[{name}]]` block for each."
            blocks += [f"## [[{name}]]", introduction, _block(block)]
    return page("Configuration", "`schemas/settings.py` and `schemas/discovery_settings.py`", *blocks)


def _section(name: str, struct: StructType) -> str:
    rows = []
    for field in struct.fields:
        secret = (name, field.name) in SECRET_KEYS
        meaning = DOCS[struct.cls.__name__][field.name]
        rows.append(
            (
                code(field.name),
                allowed(field.type),
                default(field),
                f"**Secret**. {_besides_secret(meaning)}" if secret else meaning,
            )
        )
    return table(("Key", "Allowed", "Default", "Meaning"), rows)


def _as_kafka(struct: StructType) -> str:
    keys = ", ".join(code(field.name) for field in struct.fields)
    return f"As in [`[kafka]`](#kafka), defaults and secrets included: {keys}."


def _besides_secret(meaning: str) -> str:
    """Return what a meaning says after the word `Secret`, as a sentence."""
    rest = meaning.removeprefix("Secret").lstrip(";. ")
    return rest[:1].upper() + rest[1:]


def _repeated(kind: Type) -> StructType | None:
    """Return the struct of a key that is a list of blocks; None for any other key."""
    if isinstance(kind, VarTupleType) and isinstance(kind.item_type, StructType):
        return kind.item_type
    return None


def _block(struct: StructType) -> str:
    docs = DOCS[struct.cls.__name__]
    rows = [
        (code(field.name), allowed(field.type), default(field), docs[field.name])
        for field in struct.fields
        if docs[field.name] != LIKE_A_REPLICA
    ]
    alike = ", ".join(code(field.name) for field in struct.fields if docs[field.name] == LIKE_A_REPLICA)
    told = f"\n\nAlso {alike}: like those of a [replica](#replicas)." if alike else ""
    return table(("Key", "Allowed", "Default", "Meaning"), rows) + told


def allowed(kind: Type) -> str:
    """Return what values a type takes, in words."""
    match kind:
        case IntType() | FloatType():
            return _number(kind)
        case VarTupleType(item_type=StructType()):
            return "blocks, see below"
        case VarTupleType():
            return "list of texts"
        case StrType(pattern=str(pattern)):
            return WORDS.get(pattern) or f"text like {code(pattern)}"
        case StrType(min_length=int(), max_length=int(most)):
            return f"text, 1 to {most}"
        case StrType(min_length=int()):
            return "text, not empty"
        case StrType():
            return "text"
        case BoolType():
            return "boolean"
        case LiteralType(values=values):
            return ", ".join(code(json.dumps(value)) for value in values)
        case UnionType(types=parts):
            return ", ".join(allowed(part) for part in parts if not isinstance(part, NoneType))
    raise TypeError(f"no words for {kind}")


def default(field: Field) -> str:
    """Return the default as TOML writes it."""
    if field.required:
        return "**required**"
    if field.default is None:
        return "not set"
    shown = code(msgspec.json.encode(field.default).decode())
    binary = _binary_size(field.default) if field.name.endswith("_bytes") else ""
    return f"{shown} ({binary})" if binary else shown


def _number(kind: IntType | FloatType) -> str:
    word = "integer" if isinstance(kind, IntType) else "number"
    if kind.ge is not None and kind.le is not None:
        return f"{word}, {kind.ge} to {kind.le}"
    if kind.ge is not None:
        return f"{word} ≥ {kind.ge}"
    return f"{word} > {kind.gt}" if kind.gt is not None else word


def _binary_size(size: int) -> str:
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power and size % (1 << power) == 0:
            return f"{size >> power} {unit}"
    return ""
