"""Routers' choices: what they lost, beside what routing would have saved according to the fills."""

from __future__ import annotations

from pipeline.dashboards.boards.causes import CAUSE_COLOURS
from pipeline.dashboards.panel import Panel
from pipeline.dashboards.queries import CHOSEN, MAIN_GROUPS, SERIES

EMPTY = "No router posts its choices to an index here (`index.choices`, docs/index-service.md)."
_STALE = "#d1495b"
_WORSE = "#d9a514"
_LOST = "#c74b7a"


def _beside_fills(shown: str, chosen: str, routing: str) -> str:
    """Return a query of columns `shown` of choices, and of the tokens that routing lost by the fills.

    `chosen` are the sums behind the columns; `routing` ends the sum of what another replica held.
    """
    return f"""
SELECT chosen.time AS time,{shown},
    fills.routing AS routing
FROM
(
    SELECT time,{chosen}
    FROM routing_series({SERIES})
    WHERE {CHOSEN}
    GROUP BY time
) AS chosen
LEFT JOIN
(
    SELECT time, (sum(routable_peer_tokens) + sum(peer_and_evicted_tokens)) / {routing} AS routing
    FROM fills_series({SERIES})
    WHERE {CHOSEN} AND {MAIN_GROUPS}
    GROUP BY time
) AS fills USING (time)
ORDER BY time"""


SHARES = Panel(
    id="model-choices",
    title="Routers' choices and hit potential",
    description="Not the best match: choices of a replica without the longest match, as a share of those "
    "judged; the router may have had reasons, such as load. Tokens lost: by how much chosen matches were "
    "shorter than the longest, as a share of these. Index stale: judged by an index behind the log. Routing: "
    "the share of the prefill for which another replica held the blocks.",
    unit="share",
    kind="timeseries",
    width=12,
    empty=EMPTY,
    sql=_beside_fills(
        """
    chosen.worse AS `not the best match`,
    chosen.lost AS `tokens lost`,
    chosen.stale AS `index stale`""",
        """
        sum(worse_choices) / nullIf(sum(judged_choices), 0) AS worse,
        sum(lost_tokens) / nullIf(sum(best_tokens), 0) AS lost,
        sum(stale_choices) / sum(choices) AS stale""",
        "nullIf(sum(prefill_tokens), 0)",
    ),
    colours={
        "not the best match": _WORSE,
        "tokens lost": _LOST,
        "index stale": _STALE,
        "routing": CAUSE_COLOURS["routing"],
    },
)

TOKENS = Panel(
    id="model-choices-tokens",
    title="Tokens lost by routers' choices",
    description="Tokens by which chosen matches were shorter than the longest ones that an index knew when "
    "the choices were posted, and the prefill for which another replica held the blocks. They differ where a "
    "prompt was filled before its choice was posted, where requests fill the same blocks at the same time, "
    "and where choices are missing.",
    unit="tokens/s",
    kind="timeseries",
    width=12,
    empty=EMPTY,
    sql=_beside_fills(
        " chosen.lost AS `lost by choices`", " sum(lost_tokens) / any(width) AS lost", "any(width)"
    ),
    colours={"lost by choices": _LOST, "routing": CAUSE_COLOURS["routing"]},
)
