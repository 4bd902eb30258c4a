"""Where the tokens of prompts came from, as one picture whose parts add up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pipeline.dashboards.boards.causes import CAUSE_COLOURS, CAUSE_TOKENS, GENERATED, NO_PREFILL
from pipeline.dashboards.panel import Panel
from pipeline.dashboards.queries import MAIN_GROUPS, MODELS, RANGE, SERIES

ASKED = "asked for"
FOUND = "found on the GPU"
PREFILL = "prefill"
_WORDS = {
    "routable_peer_tokens": "another replica had it",
    "peer_and_evicted_tokens": "evicted here, another had it",
    "evicted_tokens": "evicted here",
    "keepable_elsewhere_tokens": "evicted elsewhere",
    "cleared_tokens": "restart or clear",
    "at_receivers_tokens": "only receivers had it",
    "cold_tokens": "new",
}
"""{column of fills: the name of its part}; the other columns have the name of their cause."""
_COLOURS = {"keepable_elsewhere_tokens": "#ecc195"}
"""Of columns that share their cause with others."""


class Part(NamedTuple):
    """What went from `whole` into a part, in tokens of a column of fills."""

    whole: str
    name: str
    column: str
    colour: str


def parts() -> Iterator[Part]:
    """Yield all parts of fills but what decoding generated, those that are no prefill first."""
    named = []
    for cause, columns in CAUSE_TOKENS.items():
        if cause == GENERATED:
            continue
        whole = ASKED if cause in NO_PREFILL else PREFILL
        for column in columns:
            colour = _COLOURS.get(column, CAUSE_COLOURS[cause])
            named.append(Part(whole, _WORDS.get(column, cause), column, colour))
    yield from (part for part in named if part.whole == ASKED)
    yield Part(ASKED, PREFILL, "prefill_tokens", "#6c7fa8")
    yield from (part for part in named if part.whole == PREFILL)


_LINKS = ",\n        ".join(f"('{part.whole}', '{part.name}', sum({part.column}))" for part in parts())

FLOW = Panel(
    id="fleet-flow",
    title="Where the tokens of prompts came from",
    description="Tokens of prompts that were found on the GPU, as engines whose metrics kvlens reads count "
    "them, or filled: from a lower tier, by transfer, or computed (prefill), by why that was needed. You "
    "could avoid, at most, what another replica had, was evicted or was lost by a restart or clear. Left "
    "out: what fills no whole block (so the share found may exceed the hit rate), and what decoding "
    "generated (docs/figures.md).",
    unit="tokens",
    kind="flow",
    width=24,
    height=9,
    sql=f"""
SELECT link.1 AS `from`, link.2 AS `into`, link.3 AS tokens
FROM
(
    SELECT [('{ASKED}', '{FOUND}', toUInt64(ifNull(sum(hit_tokens), 0)))] AS links
    FROM hit_potential_series({RANGE})
    WHERE {MODELS}
    UNION ALL
    SELECT [
        {_LINKS}
    ]
    FROM fills_series({SERIES})
    WHERE {MODELS} AND {MAIN_GROUPS}
)
ARRAY JOIN links AS link
WHERE tokens > 0
ORDER BY `from` = '{PREFILL}', `into` = '{PREFILL}', `into` != '{FOUND}', tokens DESC""",
    colours={FOUND: "#2f9e6e"} | {part.name: part.colour for part in parts()},
)
