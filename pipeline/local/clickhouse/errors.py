"""Engine errors as a ClickHouse server reports them: code, text and HTTP status."""

from __future__ import annotations

import re

from connectors.process.errors import DataError

_CODE = re.compile(r"Code: (\d+)\. ")
_VERSION_SUFFIX = re.compile(r" \(version [^)]*\)\s*$")

ACCESS_DENIED = 497
READONLY = 164
AUTHENTICATION_FAILED = 516
NOT_IMPLEMENTED = 48
SESSION_NOT_FOUND = 372
SESSION_IS_LOCKED = 373
SYNTAX_ERROR = 62
CANNOT_READ_ALL_DATA = 33
UNKNOWN_FORMAT = 73
ZLIB_INFLATE_FAILED = 354
ZSTD_DECODER_FAILED = 561
LZ4_DECODER_FAILED = 618
NOT_ENOUGH_SPACE = 243
_UNKNOWN_EXCEPTION = 1002

# Codes a server does not answer with 500, by its own table of HTTP statuses.
_STATUS = {
    **dict.fromkeys((192, 193, 512, ACCESS_DENIED, AUTHENTICATION_FAILED), 403),
    194: 401,
    **dict.fromkeys(
        (6, 26, 27, 33, 36, 38, 41, 43, 44, 53, 62, 69, 70, 72, 89, 117, 130, 131, 190, 271, 321, 349, 386),
        400,
    ),
    **dict.fromkeys((46, 47, 50, 56, 60, 63, 73, 78, 81, 115, 336, 372), 404),
    159: 408,
    NOT_IMPLEMENTED: 501,
}
# A server answers 500 to these: a write in read-only mode, impersonation, a fixed setting, a path outside,
# no such port.
_REFUSED = frozenset((READONLY, 344, 452, 481, 701))


class StoreError(DataError):
    """`code` is ClickHouse's error code; the text is what the client gets to read."""

    code: int
    message: str
    line = "Code: {code}. DB::Exception: {message}"

    @property
    def status(self) -> int:
        """The HTTP status a ClickHouse server gives this code, but 400 wherever the client is to blame."""
        return 400 if self.code in _REFUSED else _STATUS.get(self.code, 500)


def from_engine(error: BaseException, version: str) -> StoreError:
    """Return an engine's Python error, which has `Code: N. DB::Exception: ...` somewhere in its text."""
    text = str(error)
    match = _CODE.search(text)
    if match is None:
        return StoreError(_UNKNOWN_EXCEPTION, f"{text} (version {version})")
    message = text[match.end() :].removeprefix("DB::Exception: ")
    return StoreError(int(match[1]), f"{_VERSION_SUFFIX.sub('', message)} (version {version})")
