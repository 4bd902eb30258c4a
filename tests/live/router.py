"""A router of ours: asks `kvlens index` who holds a prompt, and goes by the example scorer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tests.live.engine import MODEL, LiveEngine
from tests.support.checkout import ROOT
from tests.support.files_as_modules import module_of

SCORER = ROOT / "deploy" / "examples" / "scorer.py"
RUNNING = 3
"""Requests that an engine runs at once; others wait, and count as load."""
SECONDS = 10.0
"""For an answer of the index: a machine that runs engines as well is slow."""


class Router:
    """Sends prompts on, some at a time."""

    def __init__(self, index_url: str, engines: Mapping[str, LiveEngine]) -> None:
        self._index_url = index_url
        self._engines = engines
        self._scorer = module_of(SCORER)
        self.sent: Counter[str] = Counter()
        """Requests by engine."""
        self.matched = 0
        """Requests that went to an engine of which the index knew that it holds a beginning of the prompt."""

    def send(self, prompts: list[list[int]]) -> list[list[int]]:
        """Return what the engines answered, in order."""
        given: dict[str, list[int]] = {name: [] for name in self._engines}
        hashes = next(iter(self._engines.values())).hashes(prompts)
        for number, chain in enumerate(hashes):
            held = self._scorer.asked(self._index_url, MODEL, chain, SECONDS)
            load = {name: max(0, len(given[name]) - RUNNING + 1) for name in given}
            chosen = self._scorer.best(held, load)
            given[chosen].append(number)
            self.sent[chosen] += 1
            self.matched += chosen in held
        answers: dict[int, list[int]] = {}
        for name, numbers in given.items():
            if numbers:
                said = self._engines[name].generate([prompts[number] for number in numbers])
                answers.update(zip(numbers, said, strict=True))
        return [answers[number] for number in range(len(prompts))]
