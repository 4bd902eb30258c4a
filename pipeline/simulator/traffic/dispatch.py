"""Distributes requests over the sources of a fleet: all compute, or some prefill and the others decode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.simulator.engine.scheduler import RequestTooLargeError
from pipeline.simulator.source import Source
from pipeline.simulator.traffic.requests import Request
from pipeline.simulator.traffic.routing import Router, Routing


class Dispatch:
    """Gives each request to a source and, where replicas have roles, to a second one after the first.

    It does what the proxies of vLLM's disaggregated prefill do: a prefill source computes the prompt and one
    token, then a decode source gets the whole request and pulls the prompt's KV.
    """

    def __init__(self, sources: Sequence[Source], prefilling: int, routing: Routing, seed: int) -> None:
        """The first `prefilling` sources prefill and the rest decode; 0: each does both."""
        self.rejected = 0
        """Requests that no source could ever run."""
        self._prefilling = sources[:prefilling]
        self._answering = sources[prefilling:]
        self._seed = seed
        self.reroute(routing)

    def reroute(self, routing: Routing) -> None:
        """Change the routing of later requests."""
        self._to_prefill = Router(routing, len(self._prefilling), self._seed) if self._prefilling else None
        self._to_answer = Router(routing, len(self._answering), self._seed)

    def submit(self, request: Request) -> None:
        """Give a request to the source that sees it first."""
        if self._to_prefill is None:
            self._give(self._answering, self._to_answer, request)
        else:
            first = replace(request, output=request.output[:1], then=request)
            self._give(self._prefilling, self._to_prefill, first)

    def hand_over(self) -> None:
        """Give the requests whose prompts were computed in the last step to those that decode."""
        for source in self._prefilling:
            for request in source.engine.finished:
                if request.then is not None:
                    self._give(self._answering, self._to_answer, request.then)

    def _give(self, sources: Sequence[Source], router: Router, request: Request) -> None:
        try:
            sources[router.choose(request.session)].submit(request)
        except RequestTooLargeError:
            self.rejected += 1
