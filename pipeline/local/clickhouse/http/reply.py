"""Answers over HTTP: headers, codings, streamed blocks, and errors before and after the first block."""

from __future__ import annotations

import json
import secrets
import string
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress

from aiohttp import web

from pipeline.local.clickhouse.engine import Answer
from pipeline.local.clickhouse.errors import StoreError
from pipeline.local.clickhouse.http.compression import accepted_coding, encoder
from pipeline.local.clickhouse.http.request import Request

_TAG_LENGTH = 16


class Reply:
    """The answer to one request; made when its work begins."""

    def __init__(self, http: web.Request, request: Request, timezone: str) -> None:
        self._http = http
        self._begun = time.monotonic()
        self._coding = None
        if request.query.get("enable_http_compression", "1") != "0":
            self._coding = accepted_coding(http.headers.get("Accept-Encoding", ""))
        self._headers = {
            "X-ClickHouse-Server-Display-Name": "kvlens embedded",
            "X-ClickHouse-Query-Id": request.query_id or str(uuid.uuid4()),
            "X-ClickHouse-Timezone": timezone,
        }

    def whole(
        self, answer: Answer, output_format: str | None, written: tuple[int, int] = (0, 0)
    ) -> web.Response:
        """Return the answer with a finished result; `written` is rows and bytes of an INSERT."""
        headers = {**self._headers, "X-ClickHouse-Summary": self._summary(answer, written)}
        body = answer.data
        headers["Content-Type"] = "text/plain; charset=UTF-8"
        if output_format is not None:
            headers["X-ClickHouse-Format"] = output_format
            headers["Content-Type"] = _content_type(output_format)
        if self._coding is not None and body:
            headers["Content-Encoding"] = self._coding
            coder = encoder(self._coding)
            body = coder.feed(body) + coder.finish()
        return web.Response(body=body, headers=headers)

    async def streamed(self, blocks: AsyncIterator[bytes], output_format: str) -> web.StreamResponse:
        """Send a result block by block; an error after the first block goes into the body, marked by a tag.

        The caller has made sure that the first block is there, so that an early error has its own status.
        """
        tag = "".join(secrets.choice(string.ascii_lowercase) for _ in range(_TAG_LENGTH))
        response = web.StreamResponse(
            headers={
                **self._headers,
                "X-ClickHouse-Format": output_format,
                "Content-Type": _content_type(output_format),
                "X-ClickHouse-Exception-Tag": tag,
                "X-ClickHouse-Summary": self._summary(Answer(b"", 0, 0, 0), (0, 0)),
            }
        )
        if self._coding is not None:
            response.headers["Content-Encoding"] = self._coding
        coder = encoder(self._coding)
        # A client that has gone away needs no answer.
        with suppress(ConnectionResetError):
            await response.prepare(self._http)
            try:
                async for block in blocks:
                    if piece := coder.feed(block):
                        await response.write(piece)
            except StoreError as error:
                await response.write(coder.feed(_exception_frame(error, tag)) + coder.finish())
                # Without the last chunk no client takes the answer for a complete one.
                if self._http.transport is not None:
                    self._http.transport.close()
                return response
            if rest := coder.finish():
                await response.write(rest)
            await response.write_eof()
        return response

    def _summary(self, answer: Answer, written: tuple[int, int]) -> str:
        counts = {
            "read_rows": answer.read_rows,
            "read_bytes": answer.read_bytes,
            "written_rows": written[0],
            "written_bytes": written[1],
            "total_rows_to_read": 0,
            "result_rows": answer.result_rows or written[0],
            "result_bytes": len(answer.data),
            "elapsed_ns": int((time.monotonic() - self._begun) * 1e9),
        }
        return json.dumps({name: str(count) for name, count in counts.items()})


def failed(error: StoreError) -> web.Response:
    """Return the answer for an error before anything was sent."""
    headers = {"X-ClickHouse-Exception-Code": str(error.code)}
    if error.status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="ClickHouse"'
    return web.Response(status=error.status, text=f"{error}\n", headers=headers)


def _exception_frame(error: StoreError, tag: str) -> bytes:
    text = f"{error}\n"
    return f"\r\n__exception__\r\n{tag}\r\n{text}{len(text.encode())} {tag}\r\n__exception__\r\n".encode()


def _content_type(output_format: str) -> str:
    name = output_format.lower()
    if name.startswith(("tabseparated", "tsv")):
        return "text/tab-separated-values; charset=UTF-8"
    if name.startswith("csv"):
        return "text/csv; charset=UTF-8; header=absent"
    if name.startswith("json"):
        return (
            "application/x-ndjson; charset=UTF-8"
            if name.endswith("eachrow")
            else "application/json; charset=UTF-8"
        )
    return "application/octet-stream"
