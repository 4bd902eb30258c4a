"""Who may see the page: whoever has the token, wherever it listens beyond this machine."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import time

from aiohttp import web

from pipeline.errors import PipelineError

COOKIE = "kvlens"
LASTS_SECONDS = 30 * 86400
SHORTEST_TOKEN = 16
WRONG_SECONDS = 1.0
"""Wrong tokens are answered one after the other, each after this long: nobody guesses."""


class TokenMissing(PipelineError):
    """A service would show the fleet to everybody who reaches it."""

    def __init__(self, host: str, section: str) -> None:
        super().__init__(host, section)
        self.host = host
        self.section = section

    def __str__(self) -> str:
        return (
            f"{self.section}.host {self.host} can be reached from other machines: name a file with a token "
            f"in KVLENS_{self.section.upper()}__TOKEN_FILE (or set {self.section}.token), or let it listen "
            "on 127.0.0.1"
        )


class TokenShort(PipelineError):
    """A token that can be guessed."""

    def __init__(self, section: str) -> None:
        super().__init__(section)
        self.section = section

    def __str__(self) -> str:
        return (
            f"{self.section}.token has fewer than {SHORTEST_TOKEN} characters: "
            "make one with `openssl rand -hex 24`, for example"
        )


def check_token(host: str, token: str, *, section: str = "page") -> None:
    """Raise TokenMissing or TokenShort unless a service may listen as its section of the settings says."""
    if not token and not _is_loopback(host):
        raise TokenMissing(host, section)
    if token and len(token) < SHORTEST_TOKEN:
        raise TokenShort(section)


class Login:
    """Lets in who sends the token: in the form, then by a cookie, or as a bearer token. Empty: everybody."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._wrong = asyncio.Lock()

    def allows(self, request: web.Request) -> bool:
        """Return whether the request comes from somebody who has logged in, or needs no login."""
        if not self._token:
            return True
        kind, _, sent = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return hmac.compare_digest(sent.strip().encode(), self._token)
        until, _, signature = request.cookies.get(COOKIE, "").partition(".")
        return (
            hmac.compare_digest(signature.encode(), self._signature(until).encode())
            and until.isascii()
            and until.isdigit()
            and int(until) > time.time()
        )

    async def enter(self, request: web.Request) -> web.Response | None:
        """Return the way to the page that was asked for, with the cookie; None for a wrong token."""
        sent = (await request.post()).get("token", "")
        given = sent.strip().encode() if isinstance(sent, str) else b""
        if not (self._token and hmac.compare_digest(given, self._token)):
            async with self._wrong:
                await asyncio.sleep(WRONG_SECONDS)
            return None
        # Relative, because the page does not know below which path it stands.
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

    def _signature(self, until: str) -> str:
        return hmac.new(self._token, until.encode(), hashlib.sha256).hexdigest()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
