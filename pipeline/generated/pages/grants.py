"""docs/grants.md: the least rights that each process needs of ClickHouse."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.clickhouse.rights import Role, roles
from pipeline.clickhouse.sql_files import engines, filled
from pipeline.generated.pages.markdown import code, fenced, page

INTRODUCTION = """\
Three users with the least rights suffice: one that makes tables, one that writes them, one that reads.
`kvlens` is `clickhouse.database`. `kvlens connect` does not talk to ClickHouse."""

ON_CLUSTER = """\
## On a cluster

Where `clickhouse.cluster` is set, the tables themselves are in `kvlens_local`. The users need these rights as
well, and the reader is made with one more setting. A Distributed table asks other nodes as the user that
`remote_servers` names, or as the same user where the nodes share a `secret`. These rights follow from the
statements; users of their own were not tried on a cluster."""


def grants_page() -> bytes:
    """Return the page."""
    plain, on_cluster = (
        roles("kvlens", engines=engines(), filled=filled(), on_cluster=cluster) for cluster in (False, True)
    )
    blocks = [INTRODUCTION]
    for role in plain:
        blocks += [f"## {role.name}", _who(role), fenced("sql", "\n".join(_statements(role)))]
    known = {line for role in plain for line in _statements(role)}
    besides = (line for role in on_cluster for line in _statements(role) if line not in known)
    blocks += [ON_CLUSTER, fenced("sql", "\n".join(line.partition(" --")[0] for line in besides))]
    return page("ClickHouse rights", "`pipeline/clickhouse/rights.py`", *blocks)


def _who(role: Role) -> str:
    return f"For {_list([code(each) if each.startswith('kvlens') else each for each in role.commands])}."


def _statements(role: Role) -> list[str]:
    profile = "".join(f" SETTINGS {name} = {value}" for name, value in role.profile.items())
    made = f"CREATE USER IF NOT EXISTS {role.name} IDENTIFIED BY '…'{profile};"
    return [made, *(f"GRANT {right.grant} TO {role.name}; -- {right.why}" for right in role.rights)]


def _list(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
