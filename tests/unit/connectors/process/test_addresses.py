from __future__ import annotations

import json

import pytest

from connectors.process.addresses import without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:secret@host:1/path", "http://********@host:1/path"),
        ("https://secret@host", "https://********@host"),
        ("http://user:se@cr/et@host/x", "http://********@host/x"),
        ("http://host/x?token=secret&y=1", "http://host/x?********"),
        (
            "cannot use tcp://u:secret@h:1, nor http://u:secret@h/?k=secret: no",
            "cannot use tcp://********@h:1, nor http://********@h/?******** no",
        ),
        ("http://host:8123/x", "http://host:8123/x"),
        ("tcp://*:5557 and tcp://{pod}:1", "tcp://*:5557 and tcp://{pod}:1"),
        ("user@host, no address", "user@host, no address"),
    ],
)
def test_what_may_be_secret_in_an_address_is_hidden(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_a_line_of_json_stays_one() -> None:
    line = json.dumps(
        {"message": 'no "http://u:secret@host/?k=secret" there', "more": ["http://h/?k=secret"]}
    )
    assert json.loads(without_secrets(line)) == {
        "message": 'no "http://********@host/?********" there',
        "more": ["http://h/?********"],
    }
