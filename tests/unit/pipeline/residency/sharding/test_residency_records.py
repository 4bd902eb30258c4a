"""No record of changes is larger than its topic takes, whatever sources and models are called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec

from pipeline.residency.session_changes import SessionChanges
from pipeline.residency.sharding.residency_records import RECORD_BYTES, ResidencyRecords
from schemas.residency import ResidencyRecord


def test_names_count_towards_the_size_of_a_record() -> None:
    records = ResidencyRecords(0, 1, 2)
    model, domain = "m" * 256, "d" * 1024
    names = [f"{number:256}" for number in range(2_000)]
    for name in names:
        source = SimpleNamespace(
            head=SimpleNamespace(replica=name, dp_rank=0, connectivity=SimpleNamespace(seen_live=False)),
            take_changes=lambda: [SessionChanges(1, model, domain, "complete", [], False, decides=True)],
        )
        records.add(cast(Any, source))
    made = records.finish()
    assert max(len(value) for _, _, value in made) <= RECORD_BYTES
    for shard in (0, 1):
        values = [msgspec.msgpack.decode(value, type=ResidencyRecord) for at, _, value in made if at == shard]
        assert [source.replica for value in values for source in value.sources] == names
