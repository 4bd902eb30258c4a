"""Schemas in a registry: there before the first record, or one line says why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.kafka import schema_registry as ours
from connectors.kafka.schema_registry import (
    RegistryRefused,
    RegistryUnreachable,
    SchemaRefused,
    prefixes,
    registered_form,
)
from connectors.process.errors import OperatorError
from connectors.process.tls_files import CertificateUnreadable
from schemas.settings import Kafka
from tests.support.schema_registry import SchemaRegistry, schema_registry


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as lent:
        yield lent


def kafka(registry: SchemaRegistry, **more: Any) -> Kafka:
    return Kafka(schema_registry_url=registry.url, record_format="json", topic_prefix="prod", **more)


async def test_a_schema_is_registered_once_and_its_id_stands_before_records(registry: SchemaRegistry) -> None:
    first = await prefixes(kafka(registry), "events", "residency")
    assert registry.subjects == {"prod.events.v1-value": [100_000], "prod.residency.v1-value": [100_001]}
    assert first == {"EventsRecord": b"\x00\x00\x01\x86\xa0", "ResidencyRecord": b"\x00\x00\x01\x86\xa1"}
    assert registry.schema(100_000) == registered_form("EventsRecord")
    registry.asked.clear()
    assert await prefixes(kafka(registry), "events", "residency") == first
    assert not [path for path in registry.asked if path.endswith("/versions")]


async def test_each_table_of_figures_has_a_subject(registry: SchemaRegistry) -> None:
    found = await prefixes(Kafka(schema_registry_url=registry.url + "/"), "residency", "figures")
    assert len(found) == 8
    assert {f"kvlens.figures.v1-{name}" for name in found} == set(registry.subjects)
    assert len(set(found.values())) == 8


async def test_without_a_registry_or_json_nothing_is_asked(registry: SchemaRegistry) -> None:
    assert await prefixes(Kafka(record_format="json"), "events", "figures") == {}
    assert await prefixes(Kafka(schema_registry_url=registry.url), "events", "residency", "choices") == {}
    assert not registry.asked


async def test_a_schema_that_does_not_fit_the_one_before_is_refused(registry: SchemaRegistry) -> None:
    await prefixes(kafka(registry), "events")
    registry.ids = {"another": 100_000}
    registry.incompatible = "Property `x` became required\n"
    with pytest.raises(SchemaRefused) as refused:
        await prefixes(kafka(registry), "events")
    assert not refused.value.heals
    assert str(refused.value).startswith(
        "the schema registry does not take EventsRecord for the subject prod.events.v1-value: HTTP 409, "
        r"Property `x` became required\n; nothing was written"
    )


async def test_the_password_is_read_from_its_file(registry: SchemaRegistry, tmp_path: Path) -> None:
    registry.login = "kvlens:sesame"
    file = tmp_path / "password"
    settings = kafka(registry, schema_registry_username="kvlens", schema_registry_password_file=str(file))
    for written, reason in ((None, "No such file"), ("wrong", "HTTP 401, Unauthorized")):
        if written is not None:
            file.write_text(written)
        with pytest.raises(RegistryRefused, match=reason) as refused:
            await prefixes(settings, "events")
        assert refused.value.heals
    file.write_text("sesame\n")
    assert await prefixes(settings, "events")
    with pytest.raises(RegistryRefused) as without:
        await prefixes(kafka(registry), "events")
    assert not without.value.heals


@pytest.mark.parametrize(
    ("status", "problem", "reason"),
    [
        (500, {"error_code": 50002, "message": "Operation timed out"}, "HTTP 500, Operation timed out"),
        (302, b"<html>", "HTTP 302"),
        (500, b"[" * 50_000, "HTTP 500"),
        (200, b"<html>", ""),
        (200, {"id": 2**32}, ""),
    ],
)
async def test_a_registry_that_fails_is_waited_for(
    registry: SchemaRegistry, status: int, problem: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.status, registry.problem = status, problem
    if status == 200:  # somebody else answers there
        monkeypatch.setattr(registry, "answer", lambda *_: (200, problem))
    with pytest.raises(RegistryUnreachable) as failed:
        await prefixes(kafka(registry), "events")
    assert failed.value.heals
    assert reason in str(failed.value)


async def test_a_registry_that_is_silent_or_away_is_waited_for(
    registry: SchemaRegistry, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "ANSWER_SECONDS", 0.2)
    registry.silent.set()
    with pytest.raises(RegistryUnreachable, match="no answer in time") as silent:
        await prefixes(kafka(registry), "events")
    assert silent.value.heals
    with pytest.raises(RegistryUnreachable):
        await prefixes(
            Kafka(schema_registry_url=f"http://127.0.0.1:{free_port()}", record_format="json"), "events"
        )


async def test_certificates_are_those_of_the_brokers(tmp_path: Path) -> None:
    missing = Kafka(schema_registry_url="https://127.0.0.1:1", ssl_cafile=str(tmp_path / "none.pem"))
    with pytest.raises(CertificateUnreadable) as unreadable:
        await prefixes(missing, "figures")
    assert isinstance(unreadable.value, OperatorError)
