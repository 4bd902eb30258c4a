"""Pods as an origin of sources: found by labels, read by what they and their engines say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Protocol

from connectors.discovery.kubernetes.annotations import PodRefused
from connectors.discovery.kubernetes.asking import (
    NOTHING,
    Answer,
    AskedEngine,
    AskingTelemetry,
    Descriptions,
)
from connectors.discovery.kubernetes.credentials import namespaces_of
from connectors.discovery.kubernetes.described import Description
from connectors.discovery.kubernetes.documents import ApiFailure, Pod, without_node
from connectors.discovery.kubernetes.pod_sources import asked_at, replica_of, sources_of
from connectors.discovery.kubernetes.pod_watch import AGAIN, PodWatch, PodWatchTelemetry
from connectors.sources import Source
from schemas.discovery_settings import Kubernetes
from schemas.reasons import PodRefusal

BEGIN_SECONDS = 10.0
"""How long the start waits for a first list; without one it continues with nothing to read."""


class PodTelemetry(PodWatchTelemetry, AskingTelemetry, Protocol):
    """Where the discovery of pods is reported."""

    def pod_refused(self, replica: str, reason: PodRefusal, text: str) -> None: ...


class PodOrigin:
    """The replicas of a `[[discovery.kubernetes]]`: a pod's name is a replica, its UID a session of that."""

    sharded = True

    def __init__(
        self, number: int, entry: Kubernetes, owns: Callable[[str], bool], telemetry: PodTelemetry
    ) -> None:
        """`number` counts the entries of the settings, from 0; `owns` returns whether we read a replica."""
        self.name = f"discovery.kubernetes[{number}]"
        self.sources: list[Source] = []
        self._entry = entry
        self._owns = owns
        self._telemetry = telemetry
        self._watches: list[PodWatch] | None = None
        self._descriptions = Descriptions(telemetry)
        self._made: dict[tuple[str, str], tuple[Pod, Description, list[Source]]] = {}
        self._left_out: dict[str, PodRefusal] = {}

    async def begin(self) -> None:
        """List the pods and ask their engines; without an answer there are no sources yet."""
        try:
            watches = self._watching()
        except ApiFailure as failure:
            self._telemetry.pods_unknown(self.name, "", failure.reason, str(failure))
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(watch.list_once() for watch in watches)), BEGIN_SECONDS)
        self._refresh()
        await self._descriptions.settled()
        self._refresh()

    async def follow(self, changed: Callable[[], None]) -> None:
        """Watch the pods and ask new engines, for ever."""

        def refresh() -> None:
            if self._refresh():
                changed()

        self._descriptions.on_answer(refresh)
        refresh()  # what engines have said since the start
        try:
            watches = await self._surely_watching()
            await asyncio.gather(*(watch.follow(refresh) for watch in watches))
        finally:
            await self._descriptions.close()

    def _watching(self) -> list[PodWatch]:
        """Return the watches, made by the first call that succeeds. Raises ApiFailure."""
        if self._watches is None:
            namespaces = dict.fromkeys(namespaces_of(self._entry))
            self._watches = [
                PodWatch(self.name, namespace, self._entry, self._telemetry) for namespace in namespaces
            ]
        return self._watches

    async def _surely_watching(self) -> list[PodWatch]:
        while True:
            try:
                return self._watching()
            except ApiFailure as failure:
                self._telemetry.pods_unknown(self.name, "", failure.reason, str(failure))
                await asyncio.sleep(AGAIN.longest)

    def _refresh(self) -> bool:
        """Compute the sources again; return whether they changed."""
        pods = self._admitted(pod for watch in self._watches or () for pod in watch.pods)
        engines = {pod.key: self._engine(pod) for pod in pods}
        answers = self._descriptions.ask(engine for engine in engines.values() if engine is not None)
        made: dict[tuple[str, str], tuple[Pod, Description, list[Source]]] = {}
        for pod in pods:
            engine = engines[pod.key]
            answer = Answer(NOTHING, True) if engine is None else answers.get(engine)
            before = self._made.get(pod.key)
            if before is not None and before[0].uid != pod.uid:
                before = None
            if before is not None and (answer is None or not answer.final):
                # What an engine said before counts until it says something else.
                description = before[1]
            elif answer is not None:
                description = answer.description
            else:
                continue
            if before is not None and before[0] is pod and before[1] == description:
                made[pod.key] = before
            else:
                made[pod.key] = (pod, description, self._sources(pod, description))
        self._made = made
        sources = [source for _, _, each in made.values() for source in each]
        if sources == self.sources:
            return False
        self.sources = sources
        return True

    def _admitted(self, pods: Iterable[Pod]) -> list[Pod]:
        """Return the pods of this connector's share, the oldest ones first as far as there is room."""
        ordered = sorted(pods, key=lambda pod: (pod.created, pod.key))
        former = without_node(ordered)
        reachable = [pod for pod in ordered if pod.key not in former]
        most = self._entry.max_replicas
        texts: dict[PodRefusal, str] = {
            "address_taken": "a later pod has its address: its node must be gone",
            "too_many_replicas": f"more than {most} pods match; raise max_replicas of {self.name}",
        }
        left_out: dict[str, PodRefusal] = {
            **{replica_of(pod, self._entry): "address_taken" for pod in ordered if pod.key in former},
            **{replica_of(pod, self._entry): "too_many_replicas" for pod in reachable[most:]},
        }
        for replica, reason in left_out.items() - self._left_out.items():
            self._telemetry.pod_refused(replica, reason, texts[reason])
        self._left_out = left_out
        return [pod for pod in reachable[:most] if self._owns(replica_of(pod, self._entry))]

    def _engine(self, pod: Pod) -> AskedEngine | None:
        """Return the engine to ask about a pod; None if there is nothing to ask."""
        url = asked_at(pod, self._entry)
        return None if url is None else AskedEngine(replica_of(pod, self._entry), pod.uid, pod.restarts, url)

    def _sources(self, pod: Pod, description: Description) -> list[Source]:
        def note(refusal: PodRefused) -> None:
            self._telemetry.pod_refused(replica_of(pod, self._entry), refusal.reason, str(refusal))

        try:
            return sources_of(pod, self._entry, description, note)
        except PodRefused as refusal:
            note(refusal)
            return []
