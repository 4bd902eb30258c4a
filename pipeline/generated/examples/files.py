"""Example records as files: JSON to read, MessagePack as on the wire; and those of each release, frozen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from connectors.process.errors import DataError
from pipeline.generated.examples.catalogue import EXAMPLES
from pipeline.generated.meaning import meaning_of
from pipeline.generated.records import as_json, json_of
from pipeline.generated.topics_file import load_topics

CURRENT_DIRECTORY = "schemas/examples/current"
RELEASED_DIRECTORY = "schemas/examples/released"


class FrozenExistsError(DataError):
    """`directory` holds the examples of that release already; those never change."""

    directory: Path
    line = "{directory} exists: the examples of a release never change"


def example_files() -> dict[str, bytes]:
    """Return {path in the checkout: content} of today's examples."""
    return {f"{CURRENT_DIRECTORY}/{path}": content for path, content in _encoded().items()}


def freeze(root: Path, release: str) -> Path:
    """Write today's examples and their meaning below `root` as those of a release; return their directory.

    Raises FrozenExistsError when the release has its examples already.
    """
    directory = root / RELEASED_DIRECTORY / release
    if directory.exists():
        raise FrozenExistsError(directory)
    meanings = {f"{stem}.meaning.json": as_json(meaning_of(record)) for stem, record in _records()}
    for path, content in {**_encoded(), **meanings}.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)
    return directory


def _records() -> Iterator[tuple[str, msgspec.Struct]]:
    """Yield (`<topic>/<example>`, record)."""
    for table, topic in load_topics().items():
        for name, record in EXAMPLES[table].items():
            yield f"{topic.name}/{name}", record


def _encoded() -> dict[str, bytes]:
    files = {}
    json_only = {topic.name for topic in load_topics().values() if topic.json_only}
    for stem, record in _records():
        files[f"{stem}.json"] = msgspec.json.format(json_of(record), indent=2) + b"\n"
        if stem.partition("/")[0] not in json_only:
            files[f"{stem}.msgpack"] = msgspec.msgpack.encode(record)
    return files
