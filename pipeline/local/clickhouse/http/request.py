"""Reads one HTTP request: which parameters are settings, where the statement and the data come from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from aiohttp import BodyPartReader, ClientPayloadError, web

from pipeline.local.clickhouse.errors import (
    CANNOT_READ_ALL_DATA,
    NOT_IMPLEMENTED,
    SYNTAX_ERROR,
    UNKNOWN_FORMAT,
    StoreError,
)
from pipeline.local.clickhouse.http.compression import Decoder
from pipeline.local.clickhouse.statements import Head, Verdict, read_head

# Parameters for the HTTP interface, not for the engine. Those in the last two lines are settings of the
# engine, but for an interface that it does not have here.
_NOT_SETTINGS = frozenset(
    (
        *(
            "query",
            "database",
            "default_format",
            "user",
            "password",
            "quota_key",
            "role",
            "query_id",
            "stacktrace",
        ),
        *("session_id", "session_timeout", "session_check", "close_session", "compress", "decompress"),
        *("wait_end_of_query", "buffer_size", "client_protocol_version", "readonly"),
        *("enable_http_compression", "http_zlib_compression_level", "send_progress_in_http_headers"),
        *("http_headers_progress_interval_ms", "cancel_http_readonly_queries_on_client_close"),
    )
)
_EXTERNAL_SUFFIXES = ("_format", "_structure", "_types")
_READ_BYTES = 1 << 18
_LONGEST_STATEMENT = 4 << 20  # without the data of an INSERT
_MOST_DIGITS = 18


class ExternalTable(NamedTuple):
    """Data sent along with a query, which sees them as a temporary table; `columns` is `name Type, ...`."""

    name: str
    columns: str
    format: str
    data: bytes


class Request(NamedTuple):
    """`query` holds URL and form parameters; `body` the decoded body that is left to read."""

    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: AsyncIterator[bytes]
    external: list[ExternalTable]
    readonly: bool

    @property
    def settings(self) -> dict[str, str]:
        """Settings and `param_x` values, for SET."""
        tables = tuple(table.name + suffix for table in self.external for suffix in _EXTERNAL_SUFFIXES)
        return {
            name: value
            for name, value in self.query.items()
            if name not in _NOT_SETTINGS and name not in tables
        }

    @property
    def query_id(self) -> str:
        """The query id without characters that cannot be in a header."""
        return "".join(filter(str.isprintable, self.query.get("query_id", "")))

    @property
    def database(self) -> str:
        return self.query.get("database") or self.headers.get("X-ClickHouse-Database", "")

    @property
    def default_format(self) -> str | None:
        return self.query.get("default_format") or self.headers.get("X-ClickHouse-Format")


async def read_request(http: web.Request) -> Request:
    """Read the parameters and, of a form, everything; raises StoreError for what is not supported."""
    query = dict(http.query)
    if query.get("compress", "0") != "0" or query.get("decompress", "0") != "0":
        raise StoreError(
            NOT_IMPLEMENTED,
            "The embedded store does not speak ClickHouse's own block compression (compress, decompress); "
            "use Accept-Encoding and Content-Encoding with gzip, deflate, lz4 or zstd",
        )
    external: list[ExternalTable] = []
    body = _decoded(http)
    if http.content_type.startswith("multipart/"):
        files: dict[str, bytes] = {}
        parts = await http.multipart()
        while (part := await parts.next()) is not None:
            if isinstance(part, BodyPartReader) and part.name is not None:
                content = bytes(await part.read(decode=False))
                if part.filename is None:
                    query[part.name] = content.decode("utf-8", "surrogateescape")
                else:
                    files[part.name] = content
        external = [_external(name, data, query) for name, data in files.items()]
        body = _nothing()
    if not (default_format := query.get("default_format", "")).isprintable():
        raise StoreError(UNKNOWN_FORMAT, f"Unknown format {default_format!r}. (UNKNOWN_FORMAT)")
    # Asked for, or implied by the method, as on a server; a client cannot lift the limit of its account.
    readonly = http.method in ("GET", "HEAD") or query.get("readonly", "0") != "0"
    return Request(query, http.headers, body, external, readonly)


def whole_number(text: str) -> int | None:
    """Return the number that a parameter is; None where it is none, or has too many digits."""
    # `isdigit` alone is true of characters, and of lengths, that `int` refuses.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


async def split_statement(request: Request) -> tuple[Head, bytes, AsyncIterator[bytes]]:
    """Return the statement's head, the input read to find it, and the rest of the input.

    As on a server, the input is the `query` parameter followed by the body. For an INSERT the data are the
    second from `head.data_at` on, then the third; otherwise the second is the whole statement.
    """
    text = request.query.get("query", "").encode("utf-8", "surrogateescape")
    if text and not request.external:
        text += b"\n"
    complete = False
    while True:
        head = read_head(text, complete)
        if head.verdict in (Verdict.INSERT, Verdict.INSERT_INPUT):
            return head, text, request.body
        if complete:
            return head, text.strip(), request.body
        more = await _next(request.body)
        complete = more is None
        text += more or b""
        if len(text) > _LONGEST_STATEMENT:
            raise StoreError(
                SYNTAX_ERROR, f"Max query size exceeded: a statement has at most {_LONGEST_STATEMENT} bytes"
            )


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    async for piece in pieces:
        return piece
    return None


async def _decoded(http: web.Request) -> AsyncIterator[bytes]:
    decoder = Decoder(http.headers.get("Content-Encoding", ""))
    try:
        while data := await http.content.read(_READ_BYTES):
            if piece := decoder.feed(data):
                yield piece
    except (ClientPayloadError, ConnectionError) as error:
        raise StoreError(CANNOT_READ_ALL_DATA, f"The request's body broke off: {error}") from error
    decoder.finish()


async def _nothing() -> AsyncIterator[bytes]:
    nothing: tuple[bytes, ...] = ()
    for piece in nothing:
        yield piece


def _external(name: str, data: bytes, query: Mapping[str, str]) -> ExternalTable:
    columns = query.get(f"{name}_structure")
    if columns is None:
        types = query.get(f"{name}_types", "").split(",")
        columns = ", ".join(f"_{number} {kind}" for number, kind in enumerate(types, 1))
    return ExternalTable(name, columns, query.get(f"{name}_format", "TabSeparated"), data)
