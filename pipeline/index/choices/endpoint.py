"""`POST /choices`: choices are judged, written, and only then accepted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pipeline.index.answers import ChoicesResponse
from pipeline.index.choices.judging import Judge
from pipeline.index.choices.log import ChoiceLog, Unacknowledged
from pipeline.index.choices.posted import Choices, posted
from pipeline.index.freshness import Freshness
from pipeline.index.index import Index
from pipeline.index.questions.question import MOST_HASHES
from pipeline.index.questions.refused import QuestionRefused
from pipeline.index.telemetry import IndexMetrics
from schemas import settings
from schemas.choices import ChoiceRecord
from schemas.settings import shard_numbers

MOST_POSTS_AT_ONCE = 32
"""Posts whose choices are being judged or wait for Kafka; questions have a limit of their own."""
_AT_A_TIME = 8
"""Choices judged in one go."""


class ChoicesEndpoint:
    """Accepts routers' choices."""

    def __init__(
        self,
        index: Index,
        freshness: Freshness,
        metrics: IndexMetrics,
        settings: settings.Index,
        log: ChoiceLog | None,
    ) -> None:
        """`log`: None where choices are not recorded."""
        self._index = index
        self._freshness = freshness
        self._metrics = metrics
        self._share = shard_numbers(settings.share)[1] > 1
        self._log = log
        self._under_way = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Occupy a place meanwhile. Raises QuestionRefused."""
        if self._log is None:
            raise QuestionRefused("choices_off", "set index.choices; an index of the past records none")
        if self._under_way >= MOST_POSTS_AT_ONCE:
            raise QuestionRefused("busy", f"{MOST_POSTS_AT_ONCE} posts of choices are under way")
        self._freshness.require_ready(time.monotonic())
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def accept(self, body: bytes) -> ChoicesResponse:
        """Judge the choices of a body, and return once they are in the log. Raises QuestionRefused."""
        assert self._log is not None
        records = await self._judged(posted(body, most_hashes=MOST_HASHES, now=time.time()))
        try:
            await self._log.append(records)
        except Unacknowledged as error:
            self._metrics.choices_unacknowledged.inc(len(records))
            raise QuestionRefused("unacknowledged", str(error)) from error
        for record in records:
            self._metrics.choices.labels(_verdict(record)).inc()
        return self._response(records)

    async def _judged(self, choices: Choices) -> list[ChoiceRecord]:
        judge = Judge(self._index, choices, share=self._share)
        records: list[ChoiceRecord] = []
        for choice in choices.choices:
            if records and len(records) % _AT_A_TIME == 0:
                await asyncio.sleep(0)  # let other requests run
                judge.look_again()
            records.append(judge.record(choice, self._freshness.state(time.monotonic()), time.time()))
        return records

    def _response(self, records: Sequence[ChoiceRecord]) -> ChoicesResponse:
        judged = [record for record in records if record.not_judged is None]
        lost = [record.best_tokens - record.chosen_tokens for record in judged]
        state = self._freshness.state(time.monotonic())
        return ChoicesResponse(len(records), len(judged), sum(map(bool, lost)), sum(lost), state)


def _verdict(record: ChoiceRecord) -> str:
    """Return how a choice was judged, or why not."""
    if record.not_judged is not None:
        return record.not_judged
    return "worse" if record.chosen_tokens < record.best_tokens else "best"
