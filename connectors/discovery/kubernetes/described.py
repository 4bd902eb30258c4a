"""What engines say about themselves: where each rank publishes. No IO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from connectors.kafka.encoding import UNDECODABLE
from connectors.process.addresses import MAX_PORT

VLLM_PATH = "/kv_event_sources"
SGLANG_PATH = "/server_info"

MAX_RANKS = 1024
_Rank = Annotated[int, Meta(ge=0, lt=MAX_RANKS)]
_Port = Annotated[int, Meta(ge=1, le=MAX_PORT)]
_Text = Annotated[str, Meta(max_length=1024, pattern=r"^[^\x00-\x1f\x7f-\xa0\u2028\u2029]*$")]
_WILDCARDS = ("*", "0.0.0.0", "::", "")


class DescriptionMalformed(Exception):
    """What an engine says about where it publishes makes no sense."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a socket is bound, or what it connects to."""

    host: str
    """Empty: all addresses of the engine's host."""
    port: int

    def is_on(self, addresses: tuple[str, ...]) -> bool:
        """Return whether a host with these addresses has the socket."""
        return not self.host or self.host in addresses


@dataclass(frozen=True, slots=True)
class Publisher:
    """The sockets of one rank."""

    rank: int
    events: Address
    replay: Address | None = None
    topic: str = ""


Description = tuple[Publisher, ...]
"""All ranks of an engine, by rank; empty if it says that it publishes nothing over ZMQ."""


class _VllmSource(msgspec.Struct):
    endpoint: _Text
    data_parallel_rank: _Rank | None = None
    replay_endpoint: _Text | None = None
    topic: _Text | None = None


class _SglangPublisher(msgspec.Struct):
    endpoint_port_base: _Port
    publisher: _Text = "zmq"
    endpoint_host: _Text | None = None
    topic: _Text | None = None
    dp_size: Annotated[int, Meta(ge=1, le=MAX_RANKS)] | None = None


class _SglangInfo(msgspec.Struct):
    kv_events: _SglangPublisher | None = None


_vllm = msgspec.json.Decoder(Annotated[list[_VllmSource], Meta(max_length=MAX_RANKS)])
_sglang = msgspec.json.Decoder(_SglangInfo)


def described(path: str, page: bytes) -> Description:
    """Read the page at `path` of an engine. Raises DescriptionMalformed."""
    try:
        publishers = _of_vllm(page) if path == VLLM_PATH else _of_sglang(page)
    except UNDECODABLE as error:
        raise DescriptionMalformed(str(error)) from error
    if len({publisher.rank for publisher in publishers}) < len(publishers):
        raise DescriptionMalformed("a rank is there twice")
    return tuple(sorted(publishers, key=lambda publisher: publisher.rank))


def _of_vllm(page: bytes) -> list[Publisher]:
    return [
        Publisher(
            source.data_parallel_rank or 0,
            _address(source.endpoint),
            None if not source.replay_endpoint else _address(source.replay_endpoint),
            source.topic or "",
        )
        for source in _vllm.decode(page)
    ]


def _of_sglang(page: bytes) -> list[Publisher]:
    events = _sglang.decode(page).kv_events
    if events is None or events.publisher != "zmq":
        return []
    ranks = events.dp_size or 1
    if events.endpoint_port_base + ranks - 1 > MAX_PORT:
        raise DescriptionMalformed(f"{ranks} ranks from port {events.endpoint_port_base}")
    host = _host(events.endpoint_host or "")
    return [
        Publisher(rank, Address(host, events.endpoint_port_base + rank), None, events.topic or "")
        for rank in range(ranks)
    ]


def _address(endpoint: str) -> Address:
    scheme, found, rest = endpoint.partition("://")
    host, colon, port = rest.rpartition(":")
    if not found or scheme != "tcp" or not colon or not (port.isascii() and port.isdigit()):
        raise DescriptionMalformed(f"{endpoint!r} is not tcp://host:port")
    if not 1 <= int(port) <= MAX_PORT:
        raise DescriptionMalformed(f"{endpoint!r} has no port that can be read")
    return Address(_host(host), int(port))


def _host(host: str) -> str:
    bare = host.removeprefix("[").removesuffix("]")
    return "" if bare in _WILDCARDS else bare
