"""Schemas in Apicurio Registry by Confluent's API: what it makes of ours, and clients of what it has."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from connectors.kafka.encoding import Encoding
from connectors.kafka.schema_registry import RegistryUnreachable, prefixes, registered_form
from pipeline.worker.sink.figures import Figures
from schemas.fleet_rows import FillsRow
from schemas.settings import Kafka
from tests.fleet.clients.programs import Command, ToolMissing, python_script, run, tool
from tests.fleet.registry.apicurio import Apicurio
from tests.support.inputs.generated_logs import shared_log
from tests.support.patience import PATIENCE

DECODING = Path(__file__).with_name("decoding")
NODE_CLIENTS = ("@confluentinc/schemaregistry@1.10.1", "@kafkajs/confluent-schema-registry@4.1.0")
TOPICS = ("events", "residency", "choices", "figures")


def kafka(registry: Apicurio) -> Kafka:
    """Topics of nobody else."""
    prefix = f"t{secrets.token_hex(4)}"
    return Kafka(schema_registry_url=registry.url, record_format="json", topic_prefix=prefix)


async def test_schemas_are_registered_once_and_have_one_id_everywhere(registry: Apicurio) -> None:
    settings = kafka(registry)
    first = await prefixes(settings, *TOPICS)
    assert await prefixes(settings, *TOPICS) == first
    subjects = [one for one in registry.ask("GET", "/subjects") if one.startswith(settings.topic_prefix)]
    assert len(subjects) == len(first) == len(set(first.values()))
    assert {subject: registry.ask("GET", f"/subjects/{subject}/versions") for subject in subjects} == {
        key: [1] for key in subjects
    }
    for schema, prefix in first.items():
        number = int.from_bytes(prefix[1:], "big")
        kept = registry.ask("GET", f"/schemas/ids/{number}")
        assert (kept["schemaType"], json.loads(kept["schema"])) == ("JSON", registered_form(schema))
    assert await prefixes(kafka(registry), *TOPICS) == first


def without_a_field(schema: str) -> dict[str, Any]:
    """What an older version may have registered: a field that is not required was not there yet."""
    older = registered_form(schema)
    name = next(name for name in older["properties"] if name not in older["required"])
    del older["properties"][name]
    return older


async def test_no_rule_is_set_and_with_one_apicurio_fails_at_a_second_version(registry: Apicurio) -> None:
    """It compares schemas of 2020-12 with a library that ends at draft 7."""
    older = {"schemaType": "JSON", "schema": json.dumps(without_a_field("EventsRecord"))}
    assert registry.ask("GET", "/config") == {"compatibilityLevel": "NONE"}
    for rule in ("NONE", "BACKWARD"):
        settings = kafka(registry)
        subject = f"{settings.topic_prefix}.events.v1-value"
        registry.ask("POST", f"/subjects/{subject}/versions", older)
        registry.ask("PUT", f"/config/{subject}", {"compatibility": rule})
        if rule == "NONE":
            assert await prefixes(settings, "events")
            assert registry.ask("GET", f"/subjects/{subject}/versions") == [1, 2]
        else:
            with pytest.raises(RegistryUnreachable, match="HTTP 500, #: could not determine version"):
                await prefixes(settings, "events")


async def written(settings: Kafka) -> list[tuple[str, bytes]]:
    """Return a figure and events as workers and connectors write them, by topic."""
    found = await prefixes(settings, "events", "figures")
    fills: dict[str, Any] = dict.fromkeys(FillsRow.__struct_fields__, 0) | {
        "window": datetime.now(timezone.utc), "hash_domain": "d", "model": "m", "replica": "a",
        "regret_hist": [], "sampled_one_in": 1, "trust": "complete",
    }  # fmt: skip
    encoding = Encoding("events", settings)
    encoding.prefixes = found
    events = shared_log(3, replicas=2, rounds=4, began=time.time())
    return [
        *((one.topic, one.value) for one in Figures(settings, 8, found).records([FillsRow(**fills)])),
        *((f"{settings.topic_prefix}.events.v1", encoding.value(record)) for record in events),
    ]


def decoded(command: Sequence[str], values: Sequence[tuple[str, bytes]]) -> subprocess.CompletedProcess[str]:
    given = "".join(f"{topic} {value.hex()}\n" for topic, value in values)
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=PATIENCE, check=False)


def held(values: Sequence[tuple[str, bytes]]) -> list[Any]:
    return [json.loads(value[5:]) for _, value in values]


def shown(ended: subprocess.CompletedProcess[str]) -> list[Any]:
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


async def test_confluents_client_for_python_decodes_and_checks_records(registry: Apicurio) -> None:
    values = await written(kafka(registry))
    ended = decoded([*python_script(DECODING / "decode.py"), registry.url], values)
    assert shown(ended) == held(values)


@pytest.fixture(scope="module")
def node_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("node")
    try:
        npm = tool("npm")
        tool("node")
    except ToolMissing as error:
        pytest.skip(f"the registry's clients for Node were not tried: {error}")
    run([npm, "install", "--silent", "--no-audit", "--no-fund", *NODE_CLIENTS], folder)
    for script in DECODING.glob("*.mjs"):
        (folder / script.name).write_text(script.read_text("utf-8"), "utf-8")
    return folder


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("confluent.mjs", 'strict mode: unknown keyword: "'),
        ("kafkajs.mjs", 'no schema with key or ref "https://json-schema.org/draft/2020-12/schema"'),
    ],
)
async def test_clients_for_node_decode_once_their_checks_are_not_strict(
    script: str, reason: str, registry: Apicurio, node_clients: Path
) -> None:
    values = await written(kafka(registry))
    command: Command = ["node", str(node_clients / script), registry.url]
    as_it_is = decoded(command, values)
    assert as_it_is.returncode != 0
    assert reason in as_it_is.stderr
    loose = shown(decoded([*command, '{"strict": false}'], values))
    assert loose == held(values)
