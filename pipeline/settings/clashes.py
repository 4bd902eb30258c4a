"""Finds clashes in lists of settings: replicas, prefixes and discovery. Each problem names its path."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator

from connectors.process.addresses import MAX_PORT
from schemas.discovery_settings import Discovery, Replica
from schemas.settings import Model, Prefix, rank_endpoint

_PORT = re.compile("[0-9]{1,5}")


def prefix_problems(prefixes: tuple[Prefix, ...]) -> Iterator[str]:
    for number, block in _repeated(prefix.first_block for prefix in prefixes):
        yield f"first block {block} has two names - at `$.prefixes[{number}].first_block`"


def model_problems(models: tuple[Model, ...]) -> Iterator[str]:
    """Yield models that have two blocks: each would take back what the other says."""
    for number, name in _repeated(model.name for model in models):
        yield f"model {name!r} has two blocks - at `$.models[{number}].name`"


def _repeated(names: Iterable[str]) -> Iterator[tuple[int, str]]:
    known: set[str] = set()
    for number, name in enumerate(names):
        if name in known:
            yield number, name
        known.add(name)


def replica_problem(replicas: tuple[Replica, ...]) -> str | None:
    """Return the first clash among the replicas, with its path; None when there is none."""
    ids: set[str] = set()
    taken: dict[str, str] = {}
    shared: dict[tuple[str, range], set[str]] = {}
    for number, replica in enumerate(replicas):
        path = f"$.replicas[{number}]"
        if replica.id in ids:
            return f"replica id {replica.id!r} is used twice - at `{path}.id`"
        ids.add(replica.id)
        if replica.shared_sequence:
            if not replica.topic:
                return f"with shared_sequence the topic of the emitter is needed - at `{path}.topic`"
            if replica.replay_endpoint is not None:
                return f"nobody replays a shared sequence - at `{path}.replay_endpoint`"
            topics = shared.setdefault((replica.endpoint, replica.ranks), set())
            if replica.topic in topics:
                return f"topic {replica.topic!r} of {replica.endpoint} is used twice - at `{path}.topic`"
            topics.add(replica.topic)
            if len(topics) > 1:
                continue
        for key in ("endpoint", "replay_endpoint"):
            endpoint = getattr(replica, key)
            if endpoint is None:
                continue
            addresses = _rank_addresses(endpoint, replica.ranks)
            if isinstance(addresses, str):
                return f"{addresses} - at `{path}.{key}`"
            for address in addresses:
                if address in taken:
                    return f"{address} is also an address of {taken[address]} - at `{path}.{key}`"
            taken.update(dict.fromkeys(addresses, f"`{path}.{key}`"))
    return None


def _rank_addresses(endpoint: str, ranks: range) -> list[str] | str:
    """Return one address per rank, or the problem."""
    if not endpoint.startswith("ipc://"):
        host, colon, port = endpoint.removeprefix("tcp://").rpartition(":")
        if not (colon and host and _PORT.fullmatch(port) and 1 <= int(port) <= MAX_PORT):
            return f"expected tcp://host:port with a port from 1 to {MAX_PORT}, got {endpoint}"
        if problem := _above(int(port), ranks):
            return problem
    return [rank_endpoint(endpoint, rank) for rank in ranks]


def _above(first: int, ranks: range) -> str:
    """Return the problem if a port of a rank would be none; rank 0 has `first`."""
    last = ranks[-1]
    return f"rank {last} would have port {first + last}, above {MAX_PORT}" if first + last > MAX_PORT else ""


def dns_problems(discovery: Discovery) -> Iterator[str]:
    """Yield overlapping ports: an engine would be read twice, or its replay socket as a stream."""
    taken: dict[tuple[str, str, int], str] = {}
    for number, name in enumerate(discovery.dns):
        for key in ("port", "replay_port"):
            first = getattr(name, key)
            if first is None:
                continue
            path = f"$.discovery.dns[{number}].{key}"
            ranks = range(name.dp_ranks)
            if problem := _above(first, ranks):
                yield f"{problem} - at `{path}`"
            ports = [(name.name.lower(), name.family, first + rank) for rank in ranks]
            for port in ports:
                if port in taken:
                    yield f"port {port[2]} of {name.name} is also in {taken[port]} - at `{path}`"
            taken.update(dict.fromkeys(ports, f"`{path}`"))


def kubernetes_problems(discovery: Discovery) -> Iterator[str]:
    for number, entry in enumerate(discovery.kubernetes):
        path = f"$.discovery.kubernetes[{number}]"
        if not entry.selector and entry.preset == "vllm":
            yield f"the preset vllm knows no labels; name those of your engines - at `{path}.selector`"
        if "*" in entry.namespaces and len(entry.namespaces) > 1:
            yield f"`*` stands for all namespaces and therefore alone - at `{path}.namespaces`"
        for key in ("port", "port_base", "replay_port"):
            first = getattr(entry, key)
            if first is not None and (problem := _above(first, range(entry.dp_ranks))):
                yield f"{problem} - at `{path}.{key}`"


def bind_problems(discovery: Discovery) -> Iterator[str]:
    taken: dict[int, str] = {}
    for number, bound in enumerate(discovery.bind):
        path = f"$.discovery.bind[{number}]"
        addresses = _rank_addresses(bound.endpoint, range(bound.dp_ranks))
        if isinstance(addresses, str):
            yield f"{addresses} - at `{path}.endpoint`"
            continue
        for address in addresses:
            port = int(address.rpartition(":")[2])
            if port in taken:
                yield f"port {port} is also one of {taken[port]} - at `{path}.endpoint`"
            taken[port] = f"`{path}.endpoint`"
        for key in ("replay_endpoint", "metrics_url"):
            template = getattr(bound, key)
            if template is not None and not _only_names_pod(template):
                yield f"expected {{pod}} and no other placeholder, got {template} - at `{path}.{key}`"
        if bound.replay_endpoint is not None and _only_names_pod(bound.replay_endpoint):
            example = _rank_addresses(bound.replay_endpoint.format(pod="pod"), range(bound.dp_ranks))
            if isinstance(example, str):
                yield f"{example} - at `{path}.replay_endpoint`"


def _only_names_pod(template: str) -> bool:
    try:
        fields = [part[1:] for part in string.Formatter().parse(template) if part[1] is not None]
    except ValueError:
        return False
    return fields == [("pod", "", None)]  # behind a colon is a width
