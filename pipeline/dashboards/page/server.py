"""The page's HTTP side: boards, answers, and the files of the page itself.

The browser sends ids of panels and parameters, never SQL. Everything is read-only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import prometheus_client
import structlog
from aiohttp import web

from connectors.process.addresses import bracketed
from connectors.process.errors import OperatorError
from connectors.process.limited_log import LogLimiter
from connectors.process.listening import ForeignPage, PortUnavailable, listening
from connectors.process.login import Login
from connectors.process.registry import Registry
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.fleet_metrics.collection import FleetMetrics
from pipeline.dashboards.page.answers import Answers
from pipeline.dashboards.page.findings import Findings
from pipeline.dashboards.page.question import BadQuestion, Question, parse
from pipeline.dashboards.page.written_out import as_csv, with_values
from pipeline.dashboards.panel import Board, Choice, Panel, used_parameters
from pipeline.dashboards.queries import CHOICES
from pipeline.errors import PipelineError, StoreBusy

_log = structlog.get_logger(__name__)
_limiter = LogLimiter()

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
FILES = {file.relative_to(STATIC).as_posix(): file for file in STATIC.rglob("*") if file.suffix in TYPES}
"""The files of `/static/`: a requested name is only looked up here, never in the file system."""
NOT_KEPT = {"Cache-Control": "no-store"}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
MOST_CHOICES: dict[Choice, int] = {"model": 1000, "role": 1000, "replica": 5000}

MOST_PANELS = max(len(board.panels) for board in BOARDS)
_PANELS = {panel.id: panel for board in BOARDS for panel in board.panels}
_ANNOTATIONS = {annotation.id: annotation for board in BOARDS for annotation in board.annotations}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MAX_FORM_BYTES = 16 << 10
MAX_LINE_BYTES = 256 * 1024
"""Of a request's first line: its address may contain the names of many replicas."""
COMPRESSED_FROM = 1024
OPEN = ("/livez", "/static/")
"""What is served without a login."""
FINDINGS_BOARD = "health"
"""The board that shows the doctor's findings above its panels."""


class PageUnavailable(PipelineError):
    """The page cannot listen on its port."""

    host: str
    port: int
    reason: str
    line = "cannot serve the page on {host}:{port}: {reason}; choose another page.port, or correct page.host"


class Page:
    """Serves the boards until stopped."""

    def __init__(
        self, answers: Answers, host: str, port: int, *, findings: Findings, token: str = ""
    ) -> None:
        self.fleet = FleetMetrics(answers)
        self.registry = Registry()
        """What the process counts about itself; the fleet's metrics have it as well."""
        self._answers = answers
        self._findings = findings
        self._login = Login(token)
        self._has_login = bool(token)
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://{bracketed(self._host)}:{self._port}/"

    async def start(self) -> None:
        """Begin to listen. Raises PageUnavailable."""
        application = web.Application(
            middlewares=[_with_headers, self._logged_in], client_max_size=MAX_FORM_BYTES
        )
        application.add_routes(
            [
                web.get("/", self._index),
                web.post("/", self._enter),
                web.get("/livez", self._livez),
                web.get("/fleet/metrics", self._fleet_metrics),
                web.get("/static/{name:.+}", self._file),
                web.get("/api/boards", self._boards),
                web.get("/api/choices", self._choices),
                web.get("/api/findings", self._found),
                web.get("/api/panels/{id}", self._panel),
                web.get("/api/panels/{id}/csv", self._csv),
                web.get("/api/panels/{id}/sql", self._sql),
                web.get("/api/annotations/{id}", self._annotation),
            ]
        )
        try:
            self._runner = await listening(
                application,
                self._host,
                self._port,
                setting="page.port",
                login=self._has_login,
                max_line_size=MAX_LINE_BYTES,
                # A client that has left withdraws its questions: see Answers.
                handler_cancellation=True,
            )
        except PortUnavailable as error:
            await self.stop()
            raise PageUnavailable(self._host, self._port, error.reason) from error

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._answers.close()

    @web.middleware
    async def _logged_in(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests without a login, except for OPEN and the page itself, which asks for one."""
        if request.path.startswith(OPEN) or await self._login.lets_in(request):
            return await handler(request)
        if request.path != "/":
            return _problem(401, "log in first")
        return await handler(request) if request.method == "POST" else _login_page()

    async def _enter(self, request: web.Request) -> web.Response:
        return await self._login.enter(request) or _login_page("This is not the token.", status=401)

    async def _livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _fleet_metrics(self, _request: web.Request) -> web.Response:
        figures = await self.fleet.figures()
        body = b"".join(map(prometheus_client.generate_latest, (figures, self.registry)))
        return web.Response(body=body, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})

    async def _index(self, _request: web.Request) -> web.Response:
        text = (STATIC / "index.html").read_text("utf-8")
        seconds = self._answers.longest_seconds(MOST_PANELS)
        return web.Response(
            text=text.replace('data-wait-seconds=""', f'data-wait-seconds="{seconds}"'),
            content_type="text/html",
            headers={"Cache-Control": "no-cache"},
        )

    async def _file(self, request: web.Request) -> web.Response:
        return _static(request.match_info["name"])

    async def _boards(self, _request: web.Request) -> web.Response:
        return _json([_board(board) for board in BOARDS])

    async def _choices(self, request: web.Request) -> web.Response:
        models = tuple(request.query.getall("model", []))[:200]
        question = Question(0, 1, models)
        found = {
            name: await self._answers.of(name, f"{sql} LIMIT {MOST_CHOICES[name]}", question)
            for name, sql in CHOICES.items()
        }
        return _json({name: answer.columns[0] if answer.columns else [] for name, answer in found.items()})

    async def _found(self, _request: web.Request) -> web.Response:
        return _json(await self._findings.newest())

    async def _panel(self, request: web.Request) -> web.Response:
        panel = _asked_panel(request)
        return _json(await self._answers.of_panel(panel, _question(request)))

    async def _csv(self, request: web.Request) -> web.Response:
        panel = _asked_panel(request)
        answer = await self._answers.of_panel(panel, _question(request))
        return web.Response(
            text=as_csv(answer),
            content_type="text/csv",
            headers={"Content-Disposition": f'attachment; filename="{panel.id}.csv"', **NOT_KEPT},
        )

    async def _sql(self, request: web.Request) -> web.Response:
        panel = _asked_panel(request)
        types = used_parameters(panel.id, panel.sql)
        values = _question(request).parameters(types)
        head = f"-- {panel.title}. Database: {self._answers.database}\n"
        return web.Response(text=head + with_values(panel.sql, types, values), headers=NOT_KEPT)

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
    except StoreBusy as error:
        response = _problem(503, _too_much(error), busy=True)
    except OperatorError as error:
        response = _problem(503, str(error))
    except ForeignPage as refused:
        response = _problem(refused.status, refused.line)
    except web.HTTPException as error:
        response = _problem(error.status, error.reason)
    except Exception as error:
        if (said := _limiter.admit(type(error).__name__)) is not None:
            _log.exception("request failed", path=request.path, **said)
        response = _problem(500, f"the page's server failed ({type(error).__name__}); its log says where")
    response.headers.update(HEADERS)
    return response


def _question(request: web.Request) -> Question:
    return parse({name: request.query.getall(name) for name in set(request.query)})


def _asked_panel(request: web.Request) -> Panel:
    panel = _PANELS.get(request.match_info["id"])
    if panel is None:
        raise web.HTTPNotFound(reason="no such panel")
    return panel


def _static(name: str) -> web.Response:
    path = FILES.get(name)
    if path is None:
        return _problem(404, "no such file")
    return web.Response(
        body=path.read_bytes(),
        content_type=TYPES[path.suffix],
        charset="utf-8",
        headers={"Cache-Control": "no-cache"},
    )


def _json(value: Any) -> web.Response:
    body = msgspec.json.encode(value)
    response = web.Response(body=body, content_type="application/json", headers=NOT_KEPT)
    if len(body) >= COMPRESSED_FROM:
        response.enable_compression()
    return response


def _login_page(problem: str = "", status: int = 200) -> web.Response:
    shown = f'<p class="problem" role="alert">{problem}</p>' if problem else ""
    text = (STATIC / "login.html").read_text("utf-8").replace("<!-- problem -->", shown)
    return web.Response(text=text, content_type="text/html", status=status, headers=NOT_KEPT)


def _problem(status: int, text: str, *, busy: bool = False) -> web.Response:
    """Return an error in the page's form; `busy`: only this one statement failed."""
    response = _json({"problem": text, "busy": busy})
    response.set_status(status)
    return response


def _too_much(error: StoreBusy) -> str:
    """Return what a panel says in place of its figures."""
    if error.lacks == "memory":
        return "This panel needs more memory than the store has left: the store is busy."
    if error.lacks == "turns":
        return "The store runs as many statements as it may: the store is busy."
    if error.lacks == "answer":
        within = "in time" if error.seconds is None else f"within {error.seconds:g} s"
        return f"The store gave no answer {within}: it is busy, or hangs."
    longer = "it may" if error.seconds is None else f"{error.seconds:g} s"
    return f"This panel took longer than {longer}: the store is busy."


def _board(board: Board) -> dict[str, Any]:
    return {
        "id": board.id,
        "title": board.title,
        "description": board.description,
        "choices": board.choices,
        "findings": board.id == FINDINGS_BOARD,
        "annotations": [{"id": each.id, "title": each.title} for each in board.annotations],
        "sections": [
            {"title": section.title, "panels": [_described(panel) for panel in section.panels]}
            for section in board.sections
        ],
    }


def _described(panel: Panel) -> dict[str, Any]:
    """What the browser needs to draw a panel: everything but the SQL."""
    described: dict[str, Any] = msgspec.to_builtins(panel)
    for name in ("sql", "shared", "part", "shows"):
        del described[name]
    return described
