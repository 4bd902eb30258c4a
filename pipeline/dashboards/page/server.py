"""The page's HTTP side: boards, answers, and the files of the page itself.

The browser sends ids of panels and parameters, never SQL. Everything is read-only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.page.answers import Answers
from pipeline.dashboards.page.question import BadQuestion, Question, parse
from pipeline.dashboards.panel import Board, Panel
from pipeline.errors import PipelineError, StoreUnavailable

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
CHOICES = {
    "model": "SELECT DISTINCT model FROM sources ORDER BY model LIMIT 1000",
    "replica": "SELECT DISTINCT replica FROM sources "
    "WHERE (empty({model:Array(String)}) OR has({model:Array(String)}, model)) ORDER BY replica LIMIT 5000",
}

_PANELS = {panel.id: panel for board in BOARDS for panel in board.panels}
_ANNOTATIONS = {annotation.id: annotation for board in BOARDS for annotation in board.annotations}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageUnavailable(PipelineError):
    """The page cannot listen on its port."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(host, port, reason)
        self.host = host
        self.port = port
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"cannot serve the page on {self.host}:{self.port}: {self.reason}; "
            "choose another page.port, or correct page.host"
        )


class Page:
    """Serves the boards until stopped."""

    def __init__(self, answers: Answers, host: str, port: int) -> None:
        self._answers = answers
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/"

    async def start(self) -> None:
        """Raises PageUnavailable."""
        application = web.Application(middlewares=[_with_headers])
        application.add_routes(
            [
                web.get("/", self._index),
                web.get("/livez", self._livez),
                web.get("/static/{name:.+}", self._file),
                web.get("/api/boards", self._boards),
                web.get("/api/choices", self._choices),
                web.get("/api/panels/{id}", self._panel),
                web.get("/api/annotations/{id}", self._annotation),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            await self.stop()
            raise PageUnavailable(self._host, self._port, error.strerror or str(error)) from error

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._answers.close()

    async def _livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _index(self, _request: web.Request) -> web.Response:
        return _static("index.html")

    async def _file(self, request: web.Request) -> web.Response:
        return _static(request.match_info["name"])

    async def _boards(self, _request: web.Request) -> web.Response:
        return _json([_board(board) for board in BOARDS])

    async def _choices(self, request: web.Request) -> web.Response:
        models = tuple(request.query.getall("model", []))[:200]
        question = Question(0, 1, models)
        found = {name: await self._answers.of(name, sql, question) for name, sql in CHOICES.items()}
        return _json({name: answer.columns[0] if answer.columns else [] for name, answer in found.items()})

    async def _panel(self, request: web.Request) -> web.Response:
        panel = _PANELS.get(request.match_info["id"])
        if panel is None:
            return _problem(404, "no such panel")
        return _json(await self._answers.of(panel.id, panel.sql, _question(request)))

    async def _annotation(self, request: web.Request) -> web.Response:
        annotation = _ANNOTATIONS.get(request.match_info["id"])
        if annotation is None:
            return _problem(404, "no such annotation")
        return _json(await self._answers.of(annotation.id, annotation.sql, _question(request)))


@web.middleware
async def _with_headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Put the headers on every answer, and errors into the page's form."""
    response: web.StreamResponse
    try:
        response = await handler(request)
    except BadQuestion as error:
        response = _problem(400, str(error))
    except StoreUnavailable as error:
        response = _problem(503, str(error))
    except web.HTTPException as error:
        response = _problem(error.status, error.reason)
    response.headers.update(HEADERS)
    return response


def _question(request: web.Request) -> Question:
    return parse({name: request.query.getall(name) for name in set(request.query)})


def _static(name: str) -> web.Response:
    path = (STATIC / name).resolve()
    if STATIC not in path.parents or path.suffix not in TYPES or not path.is_file():
        return _problem(404, "no such file")
    return web.Response(
        body=path.read_bytes(),
        content_type=TYPES[path.suffix],
        charset="utf-8",
        headers={"Cache-Control": "no-cache"},
    )


def _json(value: Any) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value),
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


def _problem(status: int, text: str) -> web.Response:
    response = _json({"problem": text})
    response.set_status(status)
    return response


def _board(board: Board) -> dict[str, Any]:
    return {
        "id": board.id,
        "title": board.title,
        "description": board.description,
        "choices": board.choices,
        "annotations": [{"id": each.id, "title": each.title} for each in board.annotations],
        "sections": [
            {"title": section.title, "panels": [_described(panel) for panel in section.panels]}
            for section in board.sections
        ],
    }


def _described(panel: Panel) -> dict[str, Any]:
    """What the browser needs to draw a panel: everything but the SQL."""
    described: dict[str, Any] = msgspec.to_builtins(panel)
    del described["sql"]
    return described
