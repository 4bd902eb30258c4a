"""Traffic of a chat service: conversations of several turns over shared system prompts.

Each turn's prompt is the whole conversation so far. Some requests are one of a few canned questions, repeated
word for word, which is how real fleets come to compute the same block twice at the same time.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from pipeline.simulator.traffic.requests import Lora, Request

VOCABULARY = 151_936


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """Lengths count tokens, times are seconds."""

    seed: int = 0
    rate: float = 4.0
    """Requests a second over the whole fleet."""
    system_prompts: int = 8
    system_prompt_tokens: int = 512
    zipf_exponent: float = 1.1
    mean_turns: float = 5.0
    mean_user_tokens: int = 120
    mean_output_tokens: int = 80
    mean_think_seconds: float = 8.0
    max_prompt_tokens: int = 6000
    """A conversation ends before its prompt would exceed this."""
    canned_share: float = 0.1
    canned_questions: int = 4
    lora_share: float = 0.0
    loras: tuple[str, ...] = ("sql-lora", "chat-lora")


@dataclass(slots=True)
class _Conversation:
    session: str
    tokens: tuple[int, ...]
    lora: Lora | None
    turns_left: int


def arrivals(settings: WorkloadSettings) -> Iterator[tuple[float, Request]]:
    """Yield (seconds since start, request) in order of time, without end; equal settings, equal traffic."""
    rng = random.Random(settings.seed)
    systems = system_prompts(rng, settings)
    weights = [1 / (rank + 1) ** settings.zipf_exponent for rank in range(settings.system_prompts)]
    canned = [
        Request(
            "", systems[0] + _text(rng, settings.mean_user_tokens), _text(rng, settings.mean_output_tokens)
        )
        for _ in range(settings.canned_questions)
    ]
    # A start is one canned request or a conversation of mean_turns requests; both shares are of starts.
    per_start = settings.canned_share + (1 - settings.canned_share) * settings.mean_turns
    sessions = (f"session-{number}" for number in count(1))

    def begun() -> _Conversation:
        system = rng.choices(systems, weights)[0]
        turns = 1 + int(rng.expovariate(1 / max(settings.mean_turns - 0.5, 0.5)))
        return _Conversation(next(sessions), system, _adapter(rng, settings), turns)

    # A service in operation has this many paused conversations; numbers keep equal times in order.
    numbers = count()
    pausing = int(settings.rate * settings.mean_think_seconds * (1 - 1 / per_start))
    due: list[tuple[float, int, _Conversation | None]] = [(0.0, next(numbers), None)]
    due += [(rng.uniform(0, settings.mean_think_seconds), next(numbers), begun()) for _ in range(pausing)]
    heapq.heapify(due)
    while True:
        now, _, conversation = heapq.heappop(due)
        if conversation is None:
            pause = rng.expovariate(settings.rate / per_start)
            heapq.heappush(due, (now + pause, next(numbers), None))
            if canned and rng.random() < settings.canned_share:
                question = rng.choice(canned)
                yield now, Request(next(sessions), question.prompt, question.output)
                continue
            conversation = begun()
        request = _turn(rng, settings, conversation)
        if request is None:
            continue
        yield now, request
        if conversation.turns_left:
            pause = rng.expovariate(1 / settings.mean_think_seconds)
            heapq.heappush(due, (now + pause, next(numbers), conversation))


def system_prompts(rng: random.Random, settings: WorkloadSettings) -> list[tuple[int, ...]]:
    """Return the token ids of all system prompts, most common first; `rng` must be new, with the seed."""
    return [_text(rng, settings.system_prompt_tokens) for _ in range(settings.system_prompts)]


def _turn(rng: random.Random, settings: WorkloadSettings, conversation: _Conversation) -> Request | None:
    prompt = conversation.tokens + _text(rng, _length(rng, settings.mean_user_tokens))
    output = _text(rng, _length(rng, settings.mean_output_tokens))
    if len(prompt) > settings.max_prompt_tokens:
        return None
    conversation.tokens = prompt + output
    conversation.turns_left -= 1
    return Request(conversation.session, prompt, output, conversation.lora)


def _adapter(rng: random.Random, settings: WorkloadSettings) -> Lora | None:
    if not settings.loras or rng.random() >= settings.lora_share:
        return None
    index = rng.randrange(len(settings.loras))
    return Lora(index + 1, settings.loras[index])


def _length(rng: random.Random, mean: int) -> int:
    return 1 + int(rng.expovariate(1 / mean))


def _text(rng: random.Random, length: int) -> tuple[int, ...]:
    """Return token ids, many of them small, like a tokenizer's frequent tokens."""
    return tuple(int(VOCABULARY ** rng.random()) for _ in range(length))
