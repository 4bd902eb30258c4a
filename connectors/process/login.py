"""The login of page, index and door: a token, without which none of them listens beyond this machine."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import time
from urllib.parse import parse_qsl

import structlog
from aiohttp import web

from connectors.process.errors import OperatorError
from connectors.process.foreign_pages import is_loopback
from connectors.process.limited_log import LogLimiter

_log = structlog.get_logger(__name__)

COOKIE = "kvlens"
LASTS_SECONDS = 30 * 86400
SHORTEST_TOKEN = 16
WRONG_SECONDS = 1.0
"""Wrong tokens are answered one after the other, each after this long."""
MOST_WRONG = 64
"""Wrong tokens that may wait for their answer; more are refused at once, so that they do not fill memory."""
BODY_SECONDS = 5.0
"""A form that takes longer is refused."""
_MOST_FIELDS = 8


class TokenMissing(OperatorError):
    """A service would show the fleet to everybody who reaches it."""

    host: str
    section: str

    def __str__(self) -> str:
        return (
            f"{self.section}.host {self.host} can be reached from other machines: name a file with a token "
            f"in KVLENS_{self.section.upper()}__TOKEN_FILE (or set {self.section}.token), or let it listen "
            "on 127.0.0.1"
        )


class TokenShort(OperatorError):
    """A token that can be guessed."""

    section: str
    line = (
        f"{{section}}.token has fewer than {SHORTEST_TOKEN} characters: "
        "make one with `openssl rand -hex 24`, for example"
    )


def check_token(host: str, token: str, *, section: str = "page") -> None:
    """Raise TokenMissing or TokenShort unless a service may listen as its section of the settings says."""
    if not token and not is_loopback(host):
        raise TokenMissing(host, section)
    if token and len(token) < SHORTEST_TOKEN:
        raise TokenShort(section)


class Login:
    """Lets clients in that send the token: in the form, then by a cookie, or in a header. Empty: everybody.

    A right token never waits, even while others send wrong ones.
    """

    def __init__(self, token: str, *, basic: bool = False) -> None:
        """`basic`: also as the password of HTTP's basic authentication."""
        self._token = _bytes(token)
        self._basic = basic
        self._wrong = asyncio.Lock()
        self._waiting = 0
        self._limiter = LogLimiter()

    async def lets_in(self, request: web.Request) -> bool:
        """Return whether the request comes from somebody who has logged in, or needs no login.

        Raises HTTPTooManyRequests where too many wrong tokens wait already.
        """
        if not self._token:
            return True
        kind, _, said = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer":
            sent: bytes | None = _bytes(said.strip())
        elif kind.lower() == "basic" and self._basic:
            sent = _password(said)
        else:
            return self._has_cookie(request)  # not slowed down: guessing a signature cannot succeed
        if sent is not None and hmac.compare_digest(sent, self._token):
            return True
        await self._slowly(request)
        return False

    async def enter(self, request: web.Request) -> web.Response | None:
        """Return a redirect to the page that was asked for, with the cookie; None for a wrong token.

        Raises HTTPTooManyRequests where too many wrong tokens wait already, HTTPRequestTimeout and
        HTTPBadRequest for a body that does not come, or is not what it says.
        """
        try:
            given = _form_token(await asyncio.wait_for(request.read(), BODY_SECONDS))
        except asyncio.TimeoutError:
            raise web.HTTPRequestTimeout from None
        except web.RequestPayloadError:
            raise web.HTTPBadRequest from None
        if not (self._token and hmac.compare_digest(given, self._token)):
            await self._slowly(request)
            return None
        # Relative, because the page does not know below which path it is served.
        response = web.Response(status=303, headers={"Location": "./?" + request.rel_url.raw_query_string})
        until = str(int(time.time()) + LASTS_SECONDS)
        response.set_cookie(
            COOKIE,
            f"{until}.{self._signature(until)}",
            max_age=LASTS_SECONDS,
            httponly=True,
            samesite="Lax",
            secure=request.secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https",
        )
        return response

    async def _slowly(self, request: web.Request) -> None:
        """Wait for the turn of this wrong token, one a second."""
        said = self._limiter.admit("wrong")
        if said is not None:
            _log.warning("wrong_token", peer=request.remote, **said)
        if self._waiting >= MOST_WRONG:
            reason = f"{MOST_WRONG} wrong tokens wait for their answer, and this one is wrong, too"
            raise web.HTTPTooManyRequests(reason=reason)
        self._waiting += 1
        try:
            async with self._wrong:
                await asyncio.sleep(WRONG_SECONDS)
        finally:
            self._waiting -= 1

    def _has_cookie(self, request: web.Request) -> bool:
        until, _, signature = request.cookies.get(COOKIE, "").partition(".")
        return (
            hmac.compare_digest(_bytes(signature), self._signature(until).encode())
            and until.isascii()
            and until.isdigit()
            and int(until) > time.time()
        )

    def _signature(self, until: str) -> str:
        return hmac.new(self._token, _bytes(until), hashlib.sha256).hexdigest()


def _bytes(text: str) -> bytes:
    """Return the bytes that were sent: aiohttp and `os.environ` make surrogates of what is not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _password(said: str) -> bytes | None:
    """Return the password of basic authentication; None if it is not base64."""
    try:
        return base64.b64decode(_bytes(said), validate=True).partition(b":")[2]
    except binascii.Error:
        return None


def _form_token(body: bytes) -> bytes:
    """Return the token in a form's body, or no bytes."""
    text = body.decode("utf-8", "surrogateescape")
    try:
        fields = dict(parse_qsl(text, errors="surrogateescape", max_num_fields=_MOST_FIELDS))
    except ValueError:
        return b""
    return _bytes(fields.get("token", "").strip())
