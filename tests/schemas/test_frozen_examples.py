"""Old examples decode with new code and still mean what they meant.

`schemas/examples/<vN>` holds records as an earlier kvlens wrote them, beside what they meant. These files
never change; a new set is added with `python -m pipeline.generated --freeze vN`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import schemas.events
from pipeline.generated.meaning import meaning_of
from pipeline.generated.records import RECORDS

EXAMPLES = Path(__file__).parents[2] / "schemas" / "examples"
RECORD_TYPES = {record.__name__: record for record in RECORDS}
MEANINGS = sorted(EXAMPLES.glob("v*/*/*.meaning.json"))


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


@pytest.mark.parametrize("meaning_file", MEANINGS, ids=lambda file: str(file.relative_to(EXAMPLES)))
def test_frozen_example_means_what_it_meant(meaning_file: Path) -> None:
    before = json.loads(meaning_file.read_bytes())
    record = RECORD_TYPES[before["struct"]]
    stem = meaning_file.name.removesuffix(".meaning.json")
    packed = (meaning_file.parent / f"{stem}.msgpack").read_bytes()
    text = (meaning_file.parent / f"{stem}.json").read_bytes()
    for decoded in (msgspec.msgpack.decode(packed, type=record), msgspec.json.decode(text, type=record)):
        assert lost_meaning(before, json.loads(json.dumps(meaning_of(decoded)))) == []


def test_every_frozen_file_is_looked_at() -> None:
    stems = {file.with_name(file.name.removesuffix(".meaning.json")) for file in MEANINGS}
    expected = {stem.with_name(stem.name + suffix) for stem in stems for suffix in (".json", ".msgpack")}
    assert {file for file in EXAMPLES.glob("v*/*/*") if not file.name.endswith(".meaning.json")} == expected


def test_every_record_and_every_kind_of_event_is_frozen() -> None:
    structs: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            structs.add(value.get("struct", ""))
            value = list(value.values())
        if isinstance(value, list):
            for item in value:
                collect(item)

    for file in MEANINGS:
        collect(json.loads(file.read_bytes()))
    kinds = {kind.__name__ for kind in get_args(schemas.events.Event)}
    assert structs >= {record.__name__ for record in RECORDS} | kinds


def test_a_changed_default_is_noticed() -> None:
    before = {"struct": "Removed", "hashes": "00", "medium": "gpu"}
    assert lost_meaning(before, {**before, "added": 1}) == []
    assert lost_meaning(before, {**before, "medium": "cpu"}) == ["$.medium"]
    assert lost_meaning(before, {"struct": "Removed", "hashes": "00"}) == ["$.medium"]
    assert lost_meaning({"batches": [before, before]}, {"batches": [before]}) == ["$.batches"]


def test_metadata_only_holds_for_frozen_structs_too() -> None:
    """No record has, or had, a place for tokens, prompts, salts or multimodal keys."""
    forbidden = {"token_ids", "extra_keys", "prompt", "cache_salt", "mm_hashes"}
    for file in MEANINGS:
        text = file.read_text("utf-8")
        assert not [name for name in forbidden if f'"{name}"' in text], file
