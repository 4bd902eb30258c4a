"""Problems with settings: the key by its TOML name, what it may be, and the nearest word to a wrong one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pipeline.settings.explain import explained, nearest, place
from schemas.settings import Settings

ENGINE = {"id": "a", "model": "m", "endpoint": "tcp://a:1"}


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ({"kafka": {"securty_protocol": "SSL"}}, "[kafka] has no key `securty_protocol`; did you mean"),
        (
            {"kafka": {"security_protocol": "TLS"}},
            "kafka.security_protocol: 'TLS' is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ({"worker": 3}, "[worker]: expected a table, got a whole number"),
        ({"replicas": ENGINE}, "[replicas] is a list: write [[replicas]]"),
        ({"kafka": {"group": ""}}, "kafka.group: expected text of at least 1 characters"),
        (
            {"replicas": [{**ENGINE, "endpoint": "a:1"}]},
            "`endpoint` of [[replicas]] number 1: expected an address that begins with tcp:// or ipc://",
        ),
        (
            {"clickhouse": {"url": "localhost"}},
            "clickhouse.url: expected an address that begins with http:// or https://",
        ),
        (
            {"clickhouse": {"database": "a-b"}},
            "clickhouse.database: expected text of the form ^[A-Za-z_][A-Za-z0-9_]*$",
        ),
        (
            {"replicas": [{**ENGINE, "replay_endpoint": 5}]},
            "`replay_endpoint` of [[replicas]] number 1: expected text, got a whole number",
        ),
        (
            {"discovery": {"dns": [{"name": "a", "model": "m", "prt": 1}]}},
            "[[discovery.dns]] number 1 has no key `prt`; did you mean `port`?",
        ),
        ({"a-quite-other": {}}, "there is no section [a-quite-other]; there are kafka, clickhouse,"),
    ],
)
def test_what_msgspec_finds_is_told_in_words_of_the_file(document: dict[str, Any], line: str) -> None:
    with pytest.raises(msgspec.ValidationError) as found:
        msgspec.convert(document, Settings)
    assert explained(str(found.value), Settings).startswith(line)


def test_a_problem_in_other_words_keeps_them_after_its_place() -> None:
    text = "port 1 is also in `$.discovery.dns[0].port` - at `$.discovery.dns[1].port`"
    assert explained(text, Settings) == (
        "`port` of [[discovery.dns]] number 2: port 1 is also in `port` of [[discovery.dns]] number 1"
    )
    assert explained("JSON is malformed", Settings) == "JSON is malformed"


def test_only_a_near_word_is_offered() -> None:
    assert nearest("grup", ["group", "url"]) == "; did you mean `group`?"
    assert nearest("frobnicate", ["group", "url"]) == ""


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("$", ""),
        ("$.kafka", "[kafka]"),
        ("$.kafka.group", "kafka.group"),
        ("$.replicas[0]", "[[replicas]] number 1"),
        ("$[1].id", "`id` of entry 2"),
    ],
)
def test_a_place_is_called_as_in_the_file(path: str, name: str) -> None:
    assert place(path) == name
