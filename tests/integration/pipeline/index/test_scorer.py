"""The example scorer beside an index: who is chosen, by match, load and trust."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from schemas.events import Gap, Stored
from tests.support.checkout import ROOT
from tests.support.files_as_modules import module_of
from tests.support.inputs.source_walks import pack
from tests.support.served_index import Served

PATH = ROOT / "deploy" / "examples" / "scorer.py"
CHAIN = [*range(1, 101)]
SECONDS = 60.0


@pytest.fixture
def scorer() -> Any:
    return module_of(PATH)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    one = Served()
    one.publish("all", Stored(pack(CHAIN), 16, 1600))
    one.publish("most", Stored(pack(CHAIN[:90]), 16, 1440))
    one.publish("below", Stored(pack(CHAIN[:10]), 16, 160), Stored(pack(CHAIN[10:]), 16, medium="cpu"))
    one.catch_up()
    await one.server.start()
    yield one
    await one.server.stop()


async def instances(scorer: Any, served: Served) -> dict[str, Any]:
    found: dict[str, Any] = await asyncio.to_thread(scorer.asked, served.server.url, "m", CHAIN, SECONDS)
    return found


async def test_match_load_and_tier_decide(scorer: Any, served: Served) -> None:
    found = await instances(scorer, served)
    idle = dict.fromkeys(["all", "most", "below", "new"], 0)
    assert {one: scorer.saved(found[one]["ranks"]["0"]) for one in found} == {
        "all": 1600,
        "most": 1440,
        "below": 160 + 0.8 * 1440,
    }
    assert scorer.best(found, idle) == "all"
    assert scorer.best(found, {**idle, "all": 1}) == "most"
    assert scorer.best(found, {"all": 4, "new": 0}) == "new"


async def test_what_is_degraded_counts_half(scorer: Any, served: Served) -> None:
    served.notice("all", Gap(1, 4, "replay_truncated"))
    found = await instances(scorer, served)
    assert scorer.saved(found["all"]["ranks"]["0"]) == 800
    assert scorer.best(found, dict.fromkeys(found, 0)) == "most"


async def test_without_a_fresh_answer_nobody_holds_anything(scorer: Any, served: Served) -> None:
    served.freshness.follow([0])
    served.freshness.looked(0, next_offset=1, end=1, at=time.monotonic() - 60)
    assert await instances(scorer, served) == {}
    await served.server.stop()
    assert await instances(scorer, served) == {}
    assert scorer.best({}, {"a": 2, "b": 1}) == "b"
