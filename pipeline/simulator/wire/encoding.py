"""Encodes engine events to the exact bytes that an engine of a given era publishes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import msgspec

from pipeline.simulator.engine.events import Cleared, Event, Removed, Stored
from pipeline.simulator.wire.eras import Era
from pipeline.simulator.wire.hashing import HashForm, rendered

FIXMAP_MAX = 15
"""Pairs, the tag included, that MessagePack's one-byte map header can count."""

_encoder = msgspec.msgpack.Encoder()


def encoded_batch(
    era: Era, ts: float, events: Iterable[Event], rank: int = 0, hash_form: HashForm | None = None
) -> bytes:
    """Return the payload frame of one batch: `[ts, events, rank]` (`[ts, events]` before vLLM 0.9.2).

    `ts` is seconds since the epoch; `hash_form` overrides the era's own.
    """
    form = hash_form or era.hash_form
    wired = list(chain.from_iterable(_wired(era, form, event) for event in events))
    return _encoder.encode([ts, wired, rank] if era.has_rank else [ts, wired])


def _wired(era: Era, form: HashForm, event: Event) -> Iterable[Any]:
    if isinstance(event, Cleared):
        return (_shaped(era, "AllBlocksCleared", (), {}),)
    if isinstance(event, Removed):
        apart = era.engine == "vllm" and event.medium == "gpu"
        shares = ((digest,) for digest in event.digests) if apart else (event.digests,)
        return (_wired_removed(era, form, event, share) for share in shares)
    if len(event.digests) > 1 and (era.one_block_stored or (event.medium == "cpu" and era.cpu_hashes_apart)):
        return (_wired_stored(era, form, block) for block in _blocks(event))
    return (_wired_stored(era, form, event),)


def _blocks(event: Stored) -> Iterable[Stored]:
    """Split an event of several blocks into one event per block."""
    size = event.block_size
    parents = (event.parent, *event.digests[:-1]) if event.medium == "gpu" else (None,) * len(event.digests)
    for i, (digest, parent) in enumerate(zip(event.digests, parents, strict=True)):
        tokens = event.tokens[i * size : (i + 1) * size]
        yield replace(event, digests=(digest,), parent=parent, tokens=tokens)


def _wired_stored(era: Era, form: HashForm, event: Stored) -> Any:
    values = _placeholder_values(era, event) if event.medium == "cpu" else _stored_values(era, form, event)
    values["block_hashes"] = [rendered(digest, form, event.medium) for digest in event.digests]
    return _shaped(era, "BlockStored", era.stored_fields, values)


def _stored_values(era: Era, form: HashForm, event: Stored) -> dict[str, Any]:
    return {
        "parent_block_hash": None if event.parent is None else rendered(event.parent, form),
        "token_ids": event.tokens,
        "block_size": event.block_size,
        "lora_id": None if era.engine == "sglang" else event.lora_id,
        "medium": "GPU",
        "lora_name": None if era.engine == "trtllm" else event.lora_name,
        "extra_keys": [None if event.lora_name is None else [event.lora_name]] * len(event.digests),
        "group_idx": event.group,
        "kv_cache_spec_kind": event.spec_kind,
        "session_id": event.session,
    }


def _placeholder_values(era: Era, event: Stored) -> dict[str, Any]:
    """Return the values of an event of the CPU tier, which names blocks and little else."""
    return {
        "token_ids": (),
        "block_size": event.block_size if era.cpu_block_size_known else 0,
        "medium": era.cpu_medium,
        "group_idx": event.group if era.cpu_group_known else None,
    }


def _wired_removed(era: Era, form: HashForm, event: Removed, digests: tuple[bytes, ...]) -> Any:
    in_cpu = event.medium == "cpu"
    values = {
        "block_hashes": [rendered(digest, form, event.medium) for digest in digests],
        "medium": era.cpu_medium if in_cpu else "GPU",
        "group_idx": None if in_cpu and not era.cpu_group_known else event.group,
    }
    return _shaped(era, "BlockRemoved", era.removed_fields, values)


def _shaped(era: Era, tag: str, fields: tuple[str, ...], values: dict[str, Any]) -> Any:
    if not era.as_map:
        return [tag, *map(values.get, fields)]
    shaped: dict[str, Any] = {"type": tag}
    for field in fields:
        value = values.get(field)
        if value is not None or (field in era.required and tag == "BlockStored"):
            shaped[field] = value
    return _with_wide_header(shaped) if len(fields) > FIXMAP_MAX - 1 else shaped


def _with_wide_header(shaped: dict[str, Any]) -> msgspec.Raw:
    """Encode a map as msgspec does a struct of more than 15 fields, even when few of them are present."""
    return msgspec.Raw(b"\xde" + len(shaped).to_bytes(2, "big") + _encoder.encode(shaped)[1:])
