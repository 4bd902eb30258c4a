"""Reads and writes recordings: the frames of engines as they came, in a file that survives a torn end.

A recording is a stream of MessagePack `bin` objects with four-byte lengths, so that its end can be found
without decoding. The first holds a map, `Header`; each other one holds an array, `Frame`. Frames hold token
ids and with them what users wrote: a recording is as confidential as the prompts.

Also read: gzip of either a recording or one MessagePack array of `[topic, seq, payload]`.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from connectors.kafka.encoding import UNDECODABLE
from pipeline.errors import PipelineError
from pipeline.traces.kind import kind
from pipeline.unzipped import unzipped

FORMAT = "kvlens-recording"
VERSION = 1
MAX_FRAME_BYTES = 1 << 30
"""A longer frame is taken for damage."""

_BIN32 = 0xC6
_SUFFIXES = (".gz", ".msgpack", ".frames", ".kvrec")


class RecordedSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """The source of frames; empty strings where the recorder does not know."""

    replica: str = ""
    dp_rank: int = 0
    model: str = ""
    tenant: str = "default"
    hash_scheme: str = "vllm-sha256-int64"
    endpoint: str = ""
    role: str = ""
    """As in `schemas.settings.Role`."""


class Header(msgspec.Struct, frozen=True):
    """The first object of a recording; `sources` are numbered by their position."""

    format: str
    version: int
    sources: tuple[RecordedSource, ...]


class Frame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One multipart message as it arrived."""

    source: int
    received_at: float
    """Seconds since the epoch."""
    parts: tuple[bytes, ...]
    """Topic, sequence number, payload; anything else that came, too."""


class RecordingError(PipelineError):
    """The file is no recording, or not one this version reads."""

    path: Path
    problem: str
    line = "{path}: {problem}"


def _what_it_is(beginning: bytes) -> str:
    """Return what to say of a file that is no recording."""
    if kind(beginning)[0] == "trace":
        return "a request trace, not a kvlens recording: `kvlens whatif` reads those"
    return "not a kvlens recording" if beginning else "empty, not a kvlens recording"


class RecordingWriter:
    """Writes a new recording, readable by its owner only. `flush` bounds what a crash can lose."""

    def __init__(self, path: Path, sources: tuple[RecordedSource, ...]) -> None:
        """Raises OSError, FileExistsError too: a recording is never overwritten."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "wb", buffering=1 << 20)
        self._encoder = msgspec.msgpack.Encoder()
        self._write(Header(FORMAT, VERSION, sources))
        self._file.flush()

    def write(self, frame: Frame) -> None:
        self._write(frame)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, value: Header | Frame) -> None:
        encoded = self._encoder.encode(value)
        self._file.write(bytes((_BIN32,)) + len(encoded).to_bytes(4, "big"))
        self._file.write(encoded)


class Recording:
    """An open recording: `sources` at once, then `frames()`, after which `torn` says how the file ended."""

    def __init__(self, path: Path) -> None:
        """Raises RecordingError and OSError."""
        self.path = path
        self.torn = False
        """True when the file ends in the middle of a frame; the frames before it are whole."""
        self._file = unzipped(path)
        first = self._read(1)
        if first and first[0] == _BIN32:
            self.sources = self._header(first).sources
            self._legacy = None
        elif first and (0x90 <= first[0] <= 0x9F or first[0] in (0xDC, 0xDD)):
            self.sources = (RecordedSource(),)
            self._legacy = first
        else:
            raise RecordingError(path, _what_it_is(first + self._file.read(4096) if first else b""))

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in order of arrival, up to the last whole one. Raises RecordingError."""
        if self._legacy is not None:
            yield from self._array_of_batches(self._legacy)
            return
        decoder = msgspec.msgpack.Decoder(Frame)
        number = 0
        while (encoded := self._next_object()) is not None:
            try:
                frame = decoder.decode(encoded)
            except UNDECODABLE as error:
                raise RecordingError(self.path, f"frame {number} is damaged: {error}") from error
            if not 0 <= frame.source < len(self.sources):
                raise RecordingError(self.path, f"frame {number} is damaged: no source {frame.source}")
            yield frame
            number += 1

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _header(self, first: bytes) -> Header:
        encoded = self._next_object(first)
        try:
            if encoded is None:
                raise RecordingError(self.path, "ends within its header")
            header = msgspec.msgpack.decode(encoded, type=Header)
        except UNDECODABLE as error:
            raise RecordingError(self.path, "not a kvlens recording") from error
        if header.format != FORMAT:
            raise RecordingError(self.path, "not a kvlens recording")
        if header.version != VERSION:
            raise RecordingError(
                self.path, f"version {header.version} of the format; this kvlens reads {VERSION}"
            )
        return header

    def _next_object(self, begun: bytes = b"") -> bytes | None:
        """Return the content of the next bin object; None at the end, and `torn` says at which end."""
        head = begun + self._read(5 - len(begun))
        if not head:
            return None
        if head[0] != _BIN32:
            raise RecordingError(self.path, "damaged: no frame begins where one should")
        length = int.from_bytes(head[1:], "big")
        if len(head) == 5 and length > MAX_FRAME_BYTES:
            raise RecordingError(self.path, f"damaged: a frame of {length} bytes")
        encoded = self._read(length) if len(head) == 5 else b""
        if len(head) < 5 or len(encoded) < length:
            self.torn = True
            return None
        return encoded

    def _array_of_batches(self, first: bytes) -> Iterator[Frame]:
        rest = self._read(-1)
        if self.torn:
            raise RecordingError(self.path, "cut short; this format cannot be read in part")
        try:
            batches = msgspec.msgpack.decode(first + rest, type=list[tuple[bytes, bytes, bytes]])
        except UNDECODABLE as error:
            raise RecordingError(self.path, f"not a kvlens recording: {error}") from error
        latest = 0.0
        for topic, seq, payload in batches:
            # This format has no time of arrival; the engine's own clock is the best there is.
            latest = published_at(payload) or latest
            yield Frame(0, latest, (topic, seq, payload))

    def _read(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except EOFError:
            # A gzip file cut short; a frame that cannot be read whole is not read at all.
            self.torn = True
            return b""
        except (gzip.BadGzipFile, zlib.error) as error:
            raise RecordingError(self.path, f"damaged: {error}") from error


def replica_name(path: Path) -> str:
    """Return the name of the engine of a recording that holds none: the file's name without our suffixes."""
    name = path.name
    while (stem := _without_suffix(name)) != name:
        name = stem
    return name


def published_at(payload: bytes) -> float | None:
    """Return the engine's clock in a batch, seconds since the epoch; None when it cannot be read."""
    try:
        return _ARRAY_ENVELOPE.decode(payload).ts
    except msgspec.DecodeError:
        pass
    try:
        return _MAP_ENVELOPE.decode(payload).ts
    except msgspec.DecodeError:
        return None


class _ArrayEnvelope(msgspec.Struct, array_like=True):
    ts: float


class _MapEnvelope(msgspec.Struct):
    ts: float


_ARRAY_ENVELOPE = msgspec.msgpack.Decoder(_ArrayEnvelope)
_MAP_ENVELOPE = msgspec.msgpack.Decoder(_MapEnvelope)


def _without_suffix(name: str) -> str:
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return name
