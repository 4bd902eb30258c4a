"""Which ranks a pod has, on which ports: by annotations, its engine's description or port names. No IO."""

from __future__ import annotations

from dataclasses import dataclass, replace

from connectors.discovery.kubernetes.annotations import (
    Note,
    PodRefused,
    annotated,
    number,
    port_named,
    whole,
)
from connectors.discovery.kubernetes.described import MAX_RANKS, Address, Description, Publisher
from connectors.discovery.kubernetes.documents import Pod
from connectors.discovery.kubernetes.presets import EVENT_PORT_NAMES, REPLAY_PORT_NAMES
from connectors.process.addresses import MAX_PORT
from schemas.discovery_settings import Kubernetes


@dataclass(frozen=True, slots=True)
class _Ranks:
    first: int
    count: int
    told: bool
    """Whether the pod's annotations or label say so: what its engine says of other ranks is then left out."""


def publishers_of(pod: Pod, entry: Kubernetes, description: Description, note: Note) -> list[Publisher]:
    """Return the sockets of every rank of a pod, at least one. Raises PodRefused.

    `note` is called with what is left out of an accepted pod. An empty `description` says nothing.
    """
    ranks = _ranks(pod, entry)
    publishers = _annotated(pod, ranks)
    if publishers is None and description:
        publishers = _described(pod, ranks, description)
    if publishers is None:
        base = entry.port_base
        named = port_named(pod, EVENT_PORT_NAMES) or entry.port
        publishers = _counted(ranks, named if base is None else base, from_zero=base is not None)
    return _with_replay(pod, entry, publishers, note)


def _ranks(pod: Pod, entry: Kubernetes) -> _Ranks:
    count = number(pod, "ranks", 1, MAX_RANKS)
    first = number(pod, "first-rank", 0, MAX_RANKS - 1)
    told = count is not None or first is not None
    ranks = count or entry.dp_ranks
    if first is None and entry.index_label:
        label = pod.labels.get(entry.index_label, "")
        if (index := whole(label)) is None:
            raise PodRefused("bad_annotation", f"label {entry.index_label} is {label!r}, no number")
        first, told = index * ranks, True
    first = first or 0
    if first + ranks > MAX_RANKS:
        raise PodRefused("bad_annotation", f"{ranks} ranks from rank {first} on are more than {MAX_RANKS}")
    return _Ranks(first, ranks, told)


def _annotated(pod: Pod, ranks: _Ranks) -> list[Publisher] | None:
    port = number(pod, "port", 1, MAX_PORT)
    if port is not None:
        return _counted(ranks, port, from_zero=False)
    base = number(pod, "port-base", 1, MAX_PORT)
    return None if base is None else _counted(ranks, base, from_zero=True)


def _counted(ranks: _Ranks, port: int, *, from_zero: bool) -> list[Publisher]:
    """Return a publisher for each rank; `port` is rank 0's (`from_zero`), or that of the pod's first rank."""
    first = port + (ranks.first if from_zero else 0)
    _checked(first + ranks.count - 1)
    return [Publisher(ranks.first + each, Address("", first + each)) for each in range(ranks.count)]


def _described(pod: Pod, ranks: _Ranks, description: Description) -> list[Publisher]:
    of_pod = [
        publisher
        for publisher in description
        if not ranks.told or ranks.first <= publisher.rank < ranks.first + ranks.count
    ]
    here = [publisher for publisher in of_pod if publisher.events.is_on(pod.addresses)]
    if not here:
        others = sorted({publisher.events.host for publisher in of_pod})
        where = f"to {', '.join(others[:3])}" if others else f"no rank from {ranks.first} on"
        text = f"its engine publishes {where}; it has to bind a port of its pod"
        raise PodRefused("publishes_elsewhere", text)
    return here


def _with_replay(pod: Pod, entry: Kubernetes, publishers: list[Publisher], note: Note) -> list[Publisher]:
    port = number(pod, "replay-port", 1, MAX_PORT)
    told = {publisher.rank: publisher.replay for publisher in publishers if publisher.replay is not None}
    if port is None and told:
        elsewhere = {rank: replay for rank, replay in told.items() if not replay.is_on(pod.addresses)}
        if elsewhere:
            ranks = ", ".join(map(str, elsewhere))
            hosts = ", ".join(sorted({replay.host for replay in elsewhere.values()})[:3])
            text = f"its engine has the replay of rank {ranks} at {hosts}, no address of its pod"
            note(PodRefused("replay_elsewhere", text))
        return [replace(each, replay=None) if each.rank in elsewhere else each for each in publishers]
    port = port or port_named(pod, REPLAY_PORT_NAMES) or entry.replay_port
    if port is None:
        return publishers
    # It counts up like the event ports: from rank 0, or from the pod's first rank.
    said = annotated(pod).keys()
    from_zero = "port" not in said and ("port-base" in said or entry.port_base is not None)
    start = 0 if from_zero else publishers[0].rank
    replays = [port + publisher.rank - start for publisher in publishers]
    _checked(max(replays))
    taken = {publisher.events.port for publisher in publishers} & set(replays)
    if taken:
        note(PodRefused("replay_port_taken", f"replay port {min(taken)} is one of its event ports"))
        return publishers
    return [
        replace(publisher, replay=Address("", replay))
        for publisher, replay in zip(publishers, replays, strict=True)
    ]


def _checked(port: int) -> None:
    if port > MAX_PORT:
        raise PodRefused("bad_port", f"its last rank would have port {port}, above {MAX_PORT}")
