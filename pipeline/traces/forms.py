"""The forms in which request traces are published: where each keeps what whatif needs, or what it lacks.

To read another one, describe it here. The first form that fits a file's first object counts, so put forms
with more fields before those with fewer. Sources: the publishers' documents and loaders, as of 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.traces.fields import look_up

NO_IDS = "has no block ids: hits cannot be told"
TEXTS = "has prompts in place of block ids, and whatif reads no texts: hash them first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form of trace. Paths are those of `look_up`; of several, the first that has a value counts."""

    name: str
    has: tuple[tuple[str, ...], ...]
    """Fields of its objects: one of these sets, all of it."""
    lacks: str = ""
    """Why it cannot be read; empty: it can."""
    only: tuple[str, str] | None = None
    """Field and value of the objects that are requests; others are left out."""
    envelope: str = ""
    """Field that holds the content of an object, where objects are wrapped."""
    within: str = ""
    """The field that holds an object's requests, each of which has the fields below."""
    input_length: tuple[str, ...] = ()
    hash_ids: tuple[str, ...] = ()
    block_size: tuple[str, ...] = ()
    documented_block_size: int | None = None
    """If its documents state one, and no other publisher's files look like it."""
    time: tuple[str, ...] = ()
    time_unit: str | None = None
    """None: told by the size of the times, else assumed (`times`)."""
    delay: tuple[str, ...] = ()
    """Milliseconds from the end of the previous request of the same session."""
    session: tuple[str, ...] = ()
    chat: tuple[str, str] | None = None
    """Fields of a request's own id and of the id that it continues."""
    remark: str = ""
    """What a reader of the answer should know of such traces."""

    def fits(self, fields: Mapping[str, Any]) -> bool:
        return any(all(look_up(fields, path) is not None for path in paths) for paths in self.has)


def _one_of(names: str) -> tuple[tuple[str, ...], ...]:
    return tuple((name,) for name in names.split())


BLOCK_SIZE = ("block_size", "hash_id_block_size", "trace_block_size")

FORMS = (
    Form(
        name="Dynamo's request trace",
        has=(("event_type",), ("event.event_type",)),
        envelope="event",
        only=("event_type", "request_end"),
        input_length=("request.replay.input_length",),
        hash_ids=("request.replay.input_sequence_hashes",),
        block_size=("request.replay.trace_block_size",),
        time=("request.request_received_ms", "event_time_unix_ms"),
        time_unit="ms",
        session=("agent_context.session_id",),
    ),
    Form(
        name="WEKA's conversations",
        has=(("requests", "hash_id_scope"), ("requests.0.t",)),
        within="requests",
        input_length=("in", "input_length"),
        hash_ids=("hash_ids",),
        block_size=BLOCK_SIZE,
        documented_block_size=64,
        time=("t",),
        time_unit="s",
        session=("conversation",),
        remark="Times count from the beginning of each conversation: all are played as if begun at once.",
    ),
    Form(
        name="Qwen-Bailian's trace",
        has=(("chat_id", "parent_chat_id", "hash_ids", "input_length"),),
        input_length=("input_length",),
        hash_ids=("hash_ids",),
        block_size=BLOCK_SIZE,
        documented_block_size=16,
        time=("timestamp",),
        time_unit="s",
        chat=("chat_id", "parent_chat_id"),
    ),
    Form(
        name="LiteLLM's prefix block hashes",
        has=(("metadata.prefix_block_hashes",), ("prefix_block_hashes",)),
        input_length=("prompt_tokens", "input_tokens", "input_length"),
        hash_ids=tuple(
            f"{place}prefix_block_hashes{list_}"
            for place in ("metadata.", "")
            for list_ in (".hash_ids", ".hashes", ".block_hashes", ".ids", "")
        ),
        block_size=(
            *(f"metadata.prefix_block_hashes.{name}" for name in BLOCK_SIZE),
            *(f"prefix_block_hashes.{name}" for name in BLOCK_SIZE),
            *BLOCK_SIZE,
        ),
        time=("startTime", "start_time", "timestamp"),
        session=("session_id", "metadata.session_id"),
    ),
    Form(
        name="Mooncake's trace",  # also AIPerf's, Dynamo's, GuideLLM's and KVCache.AI's
        has=(("hash_ids", "input_length"),),
        input_length=("input_length",),
        hash_ids=("hash_ids",),
        block_size=BLOCK_SIZE,
        time=("timestamp",),
        delay=("delay_ms", "delay"),
        session=("session_id", "conversation_id", "chat_id"),
    ),
    Form(
        name="Azure's LLM inference trace",
        has=(("ContextTokens", "GeneratedTokens"),),
        lacks=NO_IDS,
    ),
    Form(
        name="BurstGPT's trace",
        has=(("Request tokens", "Response tokens"),),
        lacks=NO_IDS,
    ),
    Form(
        name="TraceLab's trace",
        has=(("prefix_tokens", "newly_append_tokens"),),
        lacks="tells how much of each prompt its own cache had, but " + NO_IDS,
    ),
    Form(
        name="a conversation dataset (ShareGPT, messages)",
        has=_one_of(
            "conversations conversation messages turns body payload requests.0.prompt requests.0.Prompt "
            "prompt prompts text texts text_input request_json"
        ),
        lacks=TEXTS,
    ),
    Form(
        name="a trace with token ids",
        has=_one_of("token_ids prompt_token_ids input_ids"),
        lacks="has token ids, which are the prompts, in place of block ids: hash them first (`kvlens hash`)",
    ),
    Form(
        name="an OpenTelemetry export",
        has=(("resourceSpans",), ("traceId", "spanId")),
        lacks=NO_IDS,
    ),
    Form(
        name="a trace with lengths only",
        has=_one_of(
            "input_length input_tokens prompt_tokens num_prefill_tokens prompt_len prompt_size "
            "input_token_length ContextTokens prompt_length input_len"
        ),
        lacks=NO_IDS,
    ),
)


def form_of(fields: Mapping[str, Any]) -> Form | None:
    """Return the form of a trace whose first object this is, or None."""
    return next((form for form in FORMS if form.fits(fields)), None)


def read_forms() -> str:
    """Return the names of the forms that can be read."""
    return ", ".join(form.name for form in FORMS if not form.lacks)
