"""Example records as files: JSON to read, MessagePack as on the wire, and frozen copies of old ones."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pipeline.generated.examples import EXAMPLES
from pipeline.generated.meaning import meaning_of
from pipeline.generated.records import as_json
from pipeline.generated.topics_file import load_topics

EXAMPLES_DIRECTORY = "schemas/examples"


class FrozenExistsError(Exception):
    """`directory` holds frozen examples already; those never change."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory} exists: frozen examples never change, choose the next name")
        self.directory = directory


def example_files() -> dict[str, bytes]:
    """Return {path: content} of all examples, `<topic>/<example>.json` and `.msgpack`."""
    files = {}
    for table, topic in load_topics().items():
        for name, record in EXAMPLES[table].items():
            stem = f"{EXAMPLES_DIRECTORY}/{topic.name}/{name}"
            files[f"{stem}.json"] = as_json(record)
            files[f"{stem}.msgpack"] = msgspec.msgpack.encode(record)
    return files


def freeze(root: Path, name: str) -> Path:
    """Write the examples of today with their meaning to `schemas/examples/<name>`, and return that directory.

    Raises FrozenExistsError when it is there already.
    """
    directory = root / EXAMPLES_DIRECTORY / name
    if directory.exists():
        raise FrozenExistsError(directory)
    for path, content in example_files().items():
        _write(directory / Path(path).relative_to(EXAMPLES_DIRECTORY), content)
    for table, topic in load_topics().items():
        for example, record in EXAMPLES[table].items():
            _write(directory / topic.name / f"{example}.meaning.json", as_json(meaning_of(record)))
    return directory


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
