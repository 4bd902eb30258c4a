"""Pieces of SQL that many panels share."""

from __future__ import annotations

MODELS = "(empty({model:Array(String)}) OR has({model:Array(String)}, model))"
REPLICAS = "(empty({replica:Array(String)}) OR has({replica:Array(String)}, replica))"
CHOSEN = f"{MODELS} AND {REPLICAS}"

RANGE = "from = {from:DateTime}, to = {to:DateTime}"
SERIES = f"{RANGE}, step = {{step:UInt32}}"
"""Arguments of the views `*_series`: columns `time` and `width` come with them (0010_series.sql)."""
LATEST = "from = {to:DateTime} - INTERVAL 60 SECOND, to = {to:DateTime}"
"""Arguments of the views of ten-second tables for what is the case at the end of the range."""

MAIN_GROUPS = f"""(hash_domain, replica, group_idx) IN
(
    SELECT hash_domain, replica, argMax(group_idx, tokens)
    FROM
    (
        SELECT hash_domain, replica, group_idx, sum(filled_tokens) AS tokens
        FROM fills_series({SERIES})
        GROUP BY hash_domain, replica, group_idx
    )
    GROUP BY hash_domain, replica
)"""
"""The KV-cache group of a replica that filled most tokens: the others hold the same tokens once more."""

TOP = 20
"""Series or rows of a picture that names replicas; the rest are added up as `others`."""
