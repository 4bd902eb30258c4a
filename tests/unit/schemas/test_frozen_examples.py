"""Examples of a release decode with today's code and still mean what they meant.

`schemas/examples/released/<release>` holds the records as that kvlens wrote them, beside what they meant; see
`frozen_set` for what stands in while nothing is released.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import schemas.events
from pipeline.generated.meaning import meaning_of
from pipeline.generated.records import JSON_FORM, RECORDS
from schemas.json_form import from_json

RECORD_TYPES = {record.__name__: record for record in RECORDS}


def lost_meaning(before: Any, now: Any, path: str = "$") -> list[str]:
    """Return where `now` no longer says what `before` said; what it says besides does not matter."""
    if isinstance(before, dict):
        if not isinstance(now, dict):
            return [path]
        return [
            found
            for key, value in before.items()
            for found in (lost_meaning(value, now[key], f"{path}.{key}") if key in now else [f"{path}.{key}"])
        ]
    if isinstance(before, list):
        if not isinstance(now, list) or len(now) != len(before):
            return [path]
        return [
            found
            for index, (old, new) in enumerate(zip(before, now, strict=True))
            for found in lost_meaning(old, new, f"{path}[{index}]")
        ]
    return [] if before == now else [path]


def misread(directory: Path) -> Iterator[str]:
    """Yield each example of a frozen set that today's code reads otherwise than its `.meaning.json` says."""
    for file in meanings(directory):
        before = json.loads(file.read_bytes())
        record = RECORD_TYPES[before["struct"]]
        for suffix, decode in ((".msgpack", msgspec.msgpack.decode), (".json", msgspec.json.decode)):
            example = example_of(file, suffix)
            if suffix not in suffixes_of(file):
                continue
            if suffix == ".json" and record in JSON_FORM:
                decoded = from_json(example.read_bytes(), record)
            else:
                decoded = decode(example.read_bytes(), type=record)
            lost = lost_meaning(before, json.loads(json.dumps(meaning_of(decoded))))
            if lost:
                yield f"{example.relative_to(directory)}: {', '.join(lost)}"


def meanings(directory: Path) -> list[Path]:
    return sorted(directory.glob("*/*.meaning.json"))


def suffixes_of(meaning: Path) -> list[str]:
    """Of the files of an example: figures are JSON only."""
    return [".json"] if meaning.parent.name == "figures.v1" else [".json", ".msgpack"]


def example_of(meaning: Path, suffix: str) -> Path:
    return meaning.with_name(meaning.name.removesuffix(".meaning.json") + suffix)


def test_frozen_examples_mean_what_they_meant(frozen_set: Path) -> None:
    assert list(misread(frozen_set)) == []


def test_every_frozen_file_is_looked_at(frozen_set: Path) -> None:
    expected = {example_of(file, suffix) for file in meanings(frozen_set) for suffix in suffixes_of(file)}
    assert expected
    assert {file for file in frozen_set.glob("*/*") if not file.name.endswith(".meaning.json")} == expected


def test_every_record_and_every_kind_of_event_would_be_frozen(frozen_now: Path) -> None:
    structs: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            structs.add(value.get("struct", ""))
            value = list(value.values())
        if isinstance(value, list):
            for item in value:
                collect(item)

    for file in meanings(frozen_now):
        collect(json.loads(file.read_bytes()))
    kinds = {kind.__name__ for kind in get_args(schemas.events.Event)}
    assert structs >= {record.__name__ for record in RECORDS} | kinds


@pytest.mark.parametrize("suffix", [".json", ".msgpack"])
def test_a_changed_example_is_noticed(frozen_set: Path, tmp_path: Path, suffix: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(frozen_set, copy)
    events = copy / "events.v1"
    shutil.copyfile(events / f"stored{suffix}", events / f"run{suffix}")
    (found,) = misread(copy)
    assert found.startswith(f"events.v1/run{suffix}: ")


def test_a_changed_default_is_noticed() -> None:
    before = {"struct": "Removed", "hashes": "00", "medium": "gpu"}
    assert lost_meaning(before, {**before, "added": 1}) == []
    assert lost_meaning(before, {**before, "medium": "cpu"}) == ["$.medium"]
    assert lost_meaning(before, {"struct": "Removed", "hashes": "00"}) == ["$.medium"]
    assert lost_meaning({"batches": [before, before]}, {"batches": [before]}) == ["$.batches"]


def test_metadata_only_holds_for_frozen_records_too(frozen_set: Path) -> None:
    """No record has, or had, a field for tokens, prompts, salts or multimodal keys."""
    forbidden = {"token_ids", "extra_keys", "prompt", "cache_salt", "mm_hashes"}
    for file in meanings(frozen_set):
        text = file.read_text("utf-8")
        assert not [name for name in forbidden if f'"{name}"' in text], file
