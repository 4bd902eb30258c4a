"""Credentials in files, read again when a file has changed: no restart is needed.

Every new connection checks the files. What cannot be used is reported and counted, and the last content that
could stays in use: a file may be read while somebody writes it.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka.abc import AbstractTokenProvider

from connectors.process.limited_log import LogLimiter
from connectors.process.login_files import RENEWED, UNUSABLE, Unreadable, state_of, text_of
from connectors.process.tls_files import CertificateUnreadable

_log = logging.getLogger("kvlens.kafka")
_limiter = LogLimiter()


class RenewedText:
    """The text of a file: a password, or a token."""

    def __init__(self, section: str, setting: str, file: str) -> None:
        """`section` and `setting` name the file. Raises CertificateUnreadable."""
        self._section, self._setting, self._file = section, setting, file
        self.last = self._read()

    def now(self) -> str:
        try:
            text = self._read()
        except CertificateUnreadable as error:
            _tell_unusable(error)
            return self.last
        if text != self.last:
            self.last = text
            _tell_renewed(self._section, self._setting, self._file)
        return text

    def _read(self) -> str:
        try:
            return text_of(self._file)
        except Unreadable as error:
            raise CertificateUnreadable(self._section, self._setting, self._file, str(error)) from error


class RenewedPassword(str):
    """A password for aiokafka, which takes a string only once; see `connectors.kafka.private`."""

    source: RenewedText

    def __new__(cls, source: RenewedText) -> RenewedPassword:
        password = super().__new__(cls, source.last)
        password.source = source
        return password


class RenewedToken(AbstractTokenProvider):  # type: ignore[misc]
    """A token for OAUTHBEARER that somebody else keeps fresh in a file."""

    def __init__(self, source: RenewedText) -> None:
        self._source = source

    async def token(self) -> str:
        return self._source.now()


class RenewedContext(ssl.SSLContext):
    """A context whose connections use the certificates and authorities that the files have now.

    Each change makes a whole new context inside, so that a certificate never meets another one's key, and
    authorities that were removed are no longer trusted.
    """

    _section: str
    _make: Callable[[], ssl.SSLContext]
    _files: Mapping[str, str]
    _looked_at: Mapping[str, tuple[int, ...] | None]
    _inside: ssl.SSLContext

    def __new__(
        cls, section: str, make: Callable[[], ssl.SSLContext], files: Mapping[str, str]
    ) -> RenewedContext:
        """`make` reads `files` (setting of `section` to path). Raises CertificateUnreadable like `make`."""
        context = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        context._section, context._make, context._files = section, make, files
        context._looked_at = context._state()
        context._inside = make()
        return context

    def __init__(self, *_: Any) -> None:
        """Do nothing: `__new__` has done it, as in the base class."""

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        return self._now().wrap_bio(*arguments, **named)

    def _now(self) -> ssl.SSLContext:
        state = self._state()
        if state != self._looked_at:
            try:
                self._inside = self._make()
            except CertificateUnreadable as error:
                _tell_unusable(error)
            else:
                for setting, file in self._files.items():
                    if state[setting] != self._looked_at[setting]:
                        _tell_renewed(self._section, setting, file)
            self._looked_at = state
        return self._inside

    def _state(self) -> dict[str, tuple[int, ...] | None]:
        return {setting: state_of(file) for setting, file in self._files.items()}


def _tell_renewed(section: str, setting: str, file: str) -> None:
    RENEWED.labels(setting).inc()
    if _limiter.admit("renewed", section, setting) is not None:
        _log.info("%s.%s was read again from %s, for new connections", section, setting, file)


def _tell_unusable(error: CertificateUnreadable) -> None:
    UNUSABLE.labels(error.setting).inc()
    if _limiter.admit("unusable", error.section, error.setting) is not None:
        _log.warning("%s; new connections go on with what was read before", error)
