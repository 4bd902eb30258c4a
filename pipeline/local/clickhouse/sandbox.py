"""The sandbox of the store: no statement opens files or hosts, no page of another site asks the store.

A ClickHouse server keeps `file()` inside one directory and its users apart; the engine inside a process does
neither, so any SQL could read and write whatever the user of this process may.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from pipeline.local.clickhouse.errors import ACCESS_DENIED, StoreError
from pipeline.local.clickhouse.statements import bare_words, calls

# Table functions, engines, dictionary sources and backup targets, all in lower case. Kafka and its like are
# here because a table of theirs keeps this engine from opening the store again.
_OUTSIDE = frozenset(
    (
        *("file", "filecluster", "filelog", "filesystem", "disk", "executable", "executable_pool", "python"),
        *(
            "url",
            "urlcluster",
            "http",
            "remote",
            "remotesecure",
            "cluster",
            "clusterallreplicas",
            "clickhouse",
        ),
        *(
            "mysql",
            "postgresql",
            "mongodb",
            "mongo",
            "redis",
            "sqlite",
            "odbc",
            "jdbc",
            "cassandra",
            "library",
        ),
        *("materializedmysql", "materializedpostgresql", "distributed", "embeddedrocksdb", "arrowflight"),
        *("kafka", "kafka2", "rabbitmq", "nats", "gcs", "oss", "cosn", "ytsaurus", "datalakecatalog"),
    )
)
_OUTSIDE_PREFIXES = ("s3", "hdfs", "azure", "iceberg", "deltalake", "hudi", "paimon")
_OUTSIDE_WORDS = frozenset(("OUTFILE", "INFILE"))
LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))


def forbidden_name(statement: bytes) -> str | None:
    """Return the first name by which a statement would reach files or other hosts; None if there is none."""
    for name in sorted(calls(statement)):
        # An escape in a quoted name could spell any of them.
        if name in _OUTSIDE or name.startswith(_OUTSIDE_PREFIXES) or "\\" in name:
            return f"{name}()"
    words = bare_words(statement)
    for word, after in zip(words, [*words[1:], ""], strict=False):
        if word in _OUTSIDE_WORDS:
            return word
        if word == "ENGINE" and after.lower() in _OUTSIDE:
            return f"ENGINE = {after}"
    return None


def refuse_foreign_pages(headers: Mapping[str, str], loopback: bool) -> None:
    """Refuse what a browser sends for a page of another site; raises StoreError 497.

    Programs send neither `Origin` nor `Sec-Fetch-Site`. Where only loopback is served, any other name in
    `Host` is that of a site whose address was changed to loopback after its page was loaded.
    """
    host = urlsplit(f"//{headers.get('Host', '127.0.0.1')}").hostname or ""
    origin = headers.get("Origin")
    if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") or (
        origin is not None and urlsplit(origin).netloc != headers.get("Host")
    ):
        raise StoreError(ACCESS_DENIED, "The embedded store answers programs and its own pages only")
    if loopback and host not in LOOPBACK:
        raise StoreError(ACCESS_DENIED, f"The embedded store does not answer to the name {host}")
