"""Conversations as prompts of token ids: some share a system prompt, each turn repeats the turns before.

Some ask the same again. Where such a prompt ends with its block, the engine computes this block once more,
and has two copies of it.
"""

from __future__ import annotations

import random

from tests.live.engine_process import BLOCK_TOKENS

SYSTEM_PROMPTS = 4
SYSTEM_TOKENS = 200
TURN_TOKENS = (30, 110)
AGAIN = 0.25
"""Share of turns that ask the same again, and of all others that are made to end with a block."""
LONGEST = 480
"""Tokens of the longest prompt; a new conversation takes the place of a longer one."""
VOCABULARY = range(10, 4_000)


class Conversations:
    """Some conversations at a time; what they say depends on the seed and on the answers."""

    def __init__(self, seed: int, count: int, again: float = AGAIN) -> None:
        """Where nobody asks `again`, all prompts end in the middle of a block."""
        self._rng = random.Random(seed)
        self._again = again
        self._systems = [self._tokens(SYSTEM_TOKENS) for _ in range(SYSTEM_PROMPTS)]
        self._said = [self._begun() for _ in range(count)]
        self._asked: list[list[int]] = [[] for _ in range(count)]
        """The last prompt of each."""

    def prompts(self) -> list[list[int]]:
        """Return the next turn of each."""
        for place, asked in enumerate(self._asked):
            if asked and self._rng.random() < self._again:
                self._said[place] = list(asked)
                continue
            before, turn = self._said[place], self._rng.randint(*TURN_TOKENS)
            if len(before) + turn + BLOCK_TOKENS > LONGEST:
                before = self._begun()
            if self._rng.random() < self._again:
                turn += -(len(before) + turn) % BLOCK_TOKENS
            elif not self._again and (len(before) + turn) % BLOCK_TOKENS < 2:
                turn += 2
            self._said[place] = self._asked[place] = [*before, *self._tokens(turn)]
        return [list(said) for said in self._said]

    def answered(self, answers: list[list[int]]) -> None:
        """Take what the engine said to each."""
        self._said = [[*said, *answer] for said, answer in zip(self._said, answers, strict=True)]

    def _begun(self) -> list[int]:
        return list(self._rng.choice(self._systems))

    def _tokens(self, count: int) -> list[int]:
        return self._rng.choices(VOCABULARY, k=count)
