"""Descriptions are joined where they agree and refused where they cannot be read side by side."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from connectors.engines.catalogue import CATALOGUE, ENGINES, EnginesDisagree, combined
from connectors.engines.description import Engine, EventType, Field, Medium
from connectors.engines.vllm import VLLM
from connectors.normalise.scan_tables import TableTooSmall, scan_tables
from schemas.events import EngineCounters

HASHES = Field("hashes", "block_hashes", 1, required=True)
SIZE = Field("block_size", "block_size", 4, required=True)
OTHER = Engine("other", (), {}, lambda seen: False)


def test_a_type_of_several_engines_has_the_fields_of_all() -> None:
    form = CATALOGUE.forms["BlockStored"]
    names = ["vllm", "sglang", "trtllm", "tokenspeed", "flexkv", "mooncake", "llm-d", "lmcache", "atom"]
    assert [engine.name for engine in form.engines] == names
    assert (form.positions["lora_name"], form.foreign_maps) == (7, {7})
    assert list(form.keys)[-5:] == ["owner", "salt", "media_keys", "object_key", "tenant"]
    assert (form.least, CATALOGUE.forms["BlockRemoved"].least) == (5, 2)
    assert CATALOGUE.forms["AllBlocksCleared"].least == 1


def test_a_field_is_required_if_every_engine_says_so() -> None:
    strict = EventType("Kept", "stored", (HASHES, SIZE, Field("parent", "parent", 5, required=True)))
    lax = EventType("Kept", "stored", (HASHES, SIZE))
    both = combined((replace(OTHER, events=(strict,)), replace(OTHER, events=(lax,))))
    assert both.forms["Kept"].required == {"hashes", "block_size"}
    assert both.forms["Kept"].least == 5
    assert combined((replace(OTHER, events=(strict,)),)).forms["Kept"].least == 6


@pytest.mark.parametrize(
    "event",
    [
        EventType("BlockStored", "removed", (HASHES,)),
        EventType("BlockStored", "stored", (HASHES,)),
        EventType("BlockStored", "stored", (HASHES, Field("block_size", "block_size", 4))),
        EventType("BlockStored", "stored", (Field("hashes", "hashes", 1, required=True), SIZE)),
        EventType("BlockStored", "stored", (Field("hashes", "block_hashes", 8, required=True), SIZE)),
        EventType("BlockStored", "stored", (HASHES, SIZE, Field("session", "session_id", 9))),
        EventType("BlockStored", "stored", (HASHES, SIZE, Field("session", "medium"))),
        EventType("BlockStored", "stored", (HASHES, SIZE, Field("session", "type"))),
        EventType("BlockStored", "stored", (HASHES, SIZE, Field("session", "session_id", 0))),
    ],
)
def test_contradictions_are_refused(event: EventType) -> None:
    with pytest.raises(EnginesDisagree, match=r"^other: BlockStored: "):
        combined((*ENGINES, replace(OTHER, events=(event,))))


def test_a_spelling_means_one_medium() -> None:
    combined((VLLM, replace(OTHER, media={"STORAGE": Medium("storage", store_only=True)})))
    with pytest.raises(EnginesDisagree, match="STORAGE"):
        combined((VLLM, replace(OTHER, media={"STORAGE": Medium("storage")})))


@pytest.mark.parametrize(
    "event",
    [
        EventType("K" * 32, "cleared"),
        EventType("Kept", "removed", (Field("hashes", "h" * 32, required=True),)),
        EventType("Kept", "removed", (Field("hashes", "h", 32, required=True),)),
    ],
)
def test_what_the_scanner_has_no_room_for_is_refused(event: EventType) -> None:
    with pytest.raises(TableTooSmall):
        scan_tables(combined((replace(OTHER, events=(event,)),)))


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_metrics_are_of_counters_that_there_are(engine: Engine) -> None:
    fields = {field.name for field in msgspec.structs.fields(EngineCounters)}
    if engine.metrics is not None:
        assert {*engine.metrics.samples, *engine.metrics.labels, *engine.metrics.sums} <= fields
