"""What a browser sends for a page of another site without asking is refused; what programs send is not."""

from __future__ import annotations

import pytest

from connectors.process.foreign_pages import foreign, is_loopback

HERE = {"Host": "127.0.0.1:8080"}
JSON = {**HERE, "Content-Type": "application/json"}


def reason(
    method: str,
    headers: dict[str, str],
    *,
    loopback: bool = True,
    linked: bool = True,
    simple_bodies: bool = False,
) -> str | None:
    found = foreign(method, headers, loopback=loopback, linked=linked, simple_bodies=simple_bodies)
    return found and found.reason


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.8.9.1:80",
        "localhost:8080",
        "LocalHost",
        "localhost.",
        "kvlens.localhost:1",
        "[::1]:8080",
    ],
)
def test_names_that_no_site_can_have_are_answered(host: str) -> None:
    assert reason("GET", {"Host": host}) is None


@pytest.mark.parametrize(
    "host",
    [
        *("elsewhere.example", "localhost.example:8080", "127.0.0.1.example", "127.0.0.1@elsewhere.example"),
        *("0.0.0.0:8080", "10.0.0.5", "[::2]", "[", "", "x\udcff", "127.1"),
    ],
)
def test_a_name_that_may_be_bound_to_loopback_later_is_refused(host: str) -> None:
    assert reason("GET", {"Host": host}) == "foreign_page"
    # Where other machines reach it, nobody knows all its names.
    assert reason("GET", {"Host": host}, loopback=False) is None


def test_the_line_shows_no_control_character_and_no_endless_name() -> None:
    found = foreign("GET", {"Host": "x\x1b[31m" + "y" * 500}, loopback=True, linked=True, simple_bodies=False)
    assert found is not None
    assert found.text.isprintable()
    assert "x\\x1b[31my" in found.text
    assert len(found.text) < 250


@pytest.mark.parametrize(
    "said",
    [
        {"Origin": "http://elsewhere.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Origin": "http://localhost:8080"},
        {"Origin": "http://elsewhere.example", "Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "what comes next"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "document"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_pages_of_other_sites_are_refused(method: str, said: dict[str, str]) -> None:
    assert reason(method, {**JSON, **said}) == "foreign_page"


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"Origin": "http://127.0.0.1:8080"},
        {"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"},
        {
            "Origin": "https://tools.example",
            "Sec-Fetch-Site": "same-origin",
        },  # a server in front changes Host
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_programs_and_own_pages_are_answered(said: dict[str, str]) -> None:
    assert reason("GET", {**HERE, **said}) is None
    assert reason("POST", {**JSON, **said}) is None


def test_a_link_of_another_site_leads_here_unless_addresses_hold_statements() -> None:
    link = {
        **HERE,
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    assert reason("GET", link) is None
    assert reason("GET", link, linked=False) == "foreign_page"
    assert reason("POST", {**link, **JSON}) == "foreign_page"


@pytest.mark.parametrize(
    "sent",
    [
        *("", "text/plain", "TEXT/PLAIN; charset=utf-8", "text/plain;application/json", "json"),
        *(
            "multipart/form-data; boundary=x",
            "application/x-www-form-urlencoded",
            "text/plain, application/json",
        ),
    ],
)
def test_a_body_that_needs_no_leave_is_refused(sent: str) -> None:
    assert reason("POST", {**HERE, "Content-Type": sent}) == "content_type"
    assert reason("POST", {**HERE, "Content-Type": sent}, simple_bodies=True) is None
    assert reason("PUT", {**HERE, "Content-Type": sent}) is None


@pytest.mark.parametrize(
    "sent", ["application/json", "Application/JSON; charset=utf-8", "application/octet-stream"]
)
def test_a_body_that_needs_leave_is_taken(sent: str) -> None:
    assert reason("POST", {**HERE, "Content-Type": sent}) is None


def test_a_body_without_a_type_is_refused() -> None:
    """Browsers send one of a Blob without a type."""
    assert reason("POST", HERE) == "content_type"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *(
            ("127.0.0.1", True),
            ("127.1.2.3", True),
            ("::1", True),
            ("localhost", True),
            ("::ffff:127.0.0.1", True),
        ),
        *(("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("x.localhost", False), ("", False)),
    ],
)
def test_what_no_other_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
