"""Compares a router's choice with the best match. No IO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.index.answers import IndexState, InstanceMatch
from pipeline.index.choices.posted import Choice, Choices
from pipeline.index.index import Index
from pipeline.index.questions.chains import chains_of
from pipeline.index.questions.question import About
from schemas.choices import ChoiceRecord
from schemas.trust import Trust, worst


class Judge:
    """Judges the choices of one request by what the index holds at the time."""

    def __init__(self, index: Index, choices: Choices, *, share: bool) -> None:
        """`share`: the index follows a share of the replicas only. Raises QuestionRefused."""
        self._index = index
        self._share = share
        self._about = About(
            choices.asked_model,
            hash_domain=choices.hash_domain,
            tenant_id=choices.tenant_id,
            block_size=choices.block_size,
        )
        self.look_again()

    def look_again(self) -> None:
        """Refresh what may have changed about the replicas. Raises QuestionRefused."""
        self._scopes: Any = self._index.scopes_of(self._about)
        self._trusts: Mapping[str, Trust] = self._index.trusts(self._scopes)

    def record(self, choice: Choice, state: IndexState, now: float) -> ChoiceRecord:
        """Return the record of a choice; `now` is in seconds since the epoch.

        Raises QuestionRefused.
        """
        about = self._about
        record = ChoiceRecord(
            choice.request_id,
            now if choice.time is None else choice.time,
            about.model_name,
            choice.instance_id,
            about.tenant_id,
            about.hash_domain or "",
            len(choice.block_hashes),
            stale=state.stale,
            index_age_seconds=state.age_seconds,
        )
        chains = chains_of([choice.block_hashes])
        if self._share:
            record.not_judged = "share"
        elif choice.instance_id not in self._trusts:
            record.not_judged = "unknown_replica"
        else:
            self._compare(record, self._index.answers(about, self._scopes, chains, now)[0].instances)
        return record

    def _compare(self, record: ChoiceRecord, instances: Mapping[str, InstanceMatch]) -> None:
        chosen = instances.get(record.replica)
        record.chosen_tokens = 0 if chosen is None else chosen.longest_matched
        record.best_tokens = max((match.longest_matched for match in instances.values()), default=0)
        record.trust = self._trusts[record.replica]
        if not record.best_tokens:
            return
        best = record.replica
        if record.chosen_tokens < record.best_tokens:
            best = min(
                replica for replica, match in instances.items() if match.longest_matched == record.best_tokens
            )
        record.best_replica = best
        record.trust = worst(record.trust, self._trusts[best])
        record.upper_bound = any(
            rank.upper_bound
            for rank in instances[best].ranks.values()
            if rank.matched_tokens == record.best_tokens
        )
