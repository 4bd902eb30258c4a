"""Names in settings that would move a cursor, break a line or turn the reading direction are refused."""

from __future__ import annotations

import pytest

from pipeline.settings.loading import ConfigurationError, load

REPLICA = '[[replicas]]\nid = "a"\nmodel = "m"\nendpoint = "tcp://127.0.0.1:5557"\n'


def nothing(name: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", name)


@pytest.mark.parametrize("code", ["001b[31m", "000a", "0007", "009b", "202e", "2028", "200b", "0085", "00ad"])
@pytest.mark.parametrize(
    ("document", "where"),
    [
        (REPLICA.replace('"a"', '"a\\u{}"'), "id"),
        (REPLICA.replace('"m"', '"m\\u{}"'), "model"),
        (REPLICA + 'tenant = "t\\u{}"\n', "tenant"),
        (REPLICA + 'topic = "kv@\\u{}"\n', "topic"),
        ('[[discovery.dns]]\nname = "x"\nmodel = "m\\u{}"\n', "model"),
        ('[[models]]\nname = "x"\ncurrency = "\\u{}"\n', "currency"),
        ('[[prefixes]]\nfirst_block = "0123456789abcdef"\nname = "x\\u{}"\n', "name"),
        ('[lmcache]\nmodels = "x\\u{}"\n', "models"),
        ('[kafka]\ngroup = "x\\u{}"\n', "group"),
    ],
)
def test_they_are_refused_where_they_stand(document: str, where: str, code: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(document.replace("{}", code), "kvlens.toml", {}, nothing)
    assert where in str(refused.value)
    assert "a control character in" in str(refused.value)
    assert str(refused.value).isprintable()


def test_secrets_and_files_may_be_any_text() -> None:
    document = '[page]\ntoken = "0123456789abcdef\\u001b"\n[worker]\nstate_directory = "/tmp/\\u202e"\n'
    assert load(document, "kvlens.toml", {}, nothing).settings.page.token.endswith("\x1b")


def test_other_languages_are_names() -> None:
    document = REPLICA.replace('"m"', '"模型-мойка é"')
    assert load(document, "kvlens.toml", {}, nothing).settings.replicas[0].model == "模型-мойка é"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://somebody:hidden-word@host:8123", "no login"),
        ("http://hidden-word@host", "no login"),
        ("http://host:8123/?password=hidden-word", "neither"),
        ("http://host:8123?user=x&password=hidden-word", "neither"),
        ("http://host:8123/#hidden-word", "neither"),
        ("http://host:none", "host:port"),
        ("http://host:99999", "host:port"),
        ("http://host:0", "host:port"),
        ("http://", "host:port"),
        ("http://:8123", "host:port"),
        ("http://[::1", "host:port"),
    ],
)
def test_what_an_address_of_the_store_cannot_hold_is_refused(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(f'[clickhouse]\nurl = "{url}"\n', "kvlens.toml", {}, nothing)
    assert told in str(refused.value)
    assert "url" in str(refused.value)
    assert "hidden-word" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["http://host", "https://host", "http://[::1]:8123/", "https://gateway/clickhouse"]
)
def test_addresses_of_stores(url: str) -> None:
    assert load(f'[clickhouse]\nurl = "{url}"\n', "kvlens.toml", {}, nothing).settings.clickhouse.url == url
