"""docs/grants.md: the least rights that each process needs of ClickHouse."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.clickhouse.rights import Role, roles
from pipeline.clickhouse.sql_files import engines, filled
from pipeline.generated.pages.markdown import code, fenced, page

INTRODUCTION = """\
Three users suffice: one that makes tables, one that writes them, one that reads, with the least rights that
each needs. `kvlens` is `clickhouse.database`. `kvlens connect` does not talk to ClickHouse. The user of
`kvlens work` reads as well: minutes and hours are computed from finer rows."""

ON_CLUSTER = """\
## On a cluster

Where `clickhouse.cluster` is set, the tables themselves are in `kvlens_local`, and the users need these
rights on both databases. A Distributed table asks other nodes as the user that `remote_servers` names, or as
the same user where the nodes share a `secret`. These rights follow from the statements; users of their own
were not tried on a cluster."""


def grants_page() -> bytes:
    """Return the page."""
    blocks = [INTRODUCTION]
    plain = roles("kvlens", engines=engines(), filled=filled())
    for role in plain:
        blocks += [f"## {role.name}", _who(role), fenced("sql", _statements(role, explained=True))]
    blocks.append(ON_CLUSTER)
    for role in roles("kvlens", engines=engines(), filled=filled(), on_cluster=True):
        blocks.append(fenced("sql", _statements(role)))
    return page("ClickHouse rights", "`pipeline/clickhouse/rights.py`", *blocks)


def _who(role: Role) -> str:
    return f"For {_list([code(each) if each.startswith('kvlens') else each for each in role.commands])}."


def _statements(role: Role, *, explained: bool = False) -> str:
    profile = "".join(f" SETTINGS {name} = {value}" for name, value in role.profile.items())
    lines = [f"CREATE USER IF NOT EXISTS {role.name} IDENTIFIED BY '…'{profile};"]
    for right in role.rights:
        why = f" -- {right.why}" if explained else ""
        lines.append(f"GRANT {right.grant} TO {role.name};{why}")
    return "\n".join(lines)


def _list(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
