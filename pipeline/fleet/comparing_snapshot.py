"""What is known of sources' hashes as fields of a checkpoint, and back."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from pipeline.fleet.comparing import FIRST, Comparing, Standing
from pipeline.fleet.index import doubled
from schemas.fleet_checkpoints import FleetHead, FleetLabel, FleetStanding


class Compared(TypedDict):
    """Fields of a `FleetHead`."""

    labels: list[FleetLabel]
    standings: list[FleetStanding]
    firsts: list[bytes]


def compared(comparing: Comparing) -> Compared:
    """Return the fields."""
    slots = np.flatnonzero(comparing.firsts["root"])
    firsts = comparing.firsts[slots]
    return Compared(
        labels=[
            FleetLabel(int(comparing.parents[label]), int(comparing.members[label]), name)
            for label, name in enumerate(comparing.names)
        ],
        standings=[
            FleetStanding(
                number,
                int(comparing.labels[number]),
                standing.domain,
                standing.model,
                standing.incarnation,
                int(comparing.returns[number]),
                standing.returns_before,
                standing.others_before,
                standing.alone,
            )
            for number, standing in comparing.standings.items()
        ],
        firsts=[slots.tobytes(), *(firsts[name].tobytes() for name in FIRST.names or ())],
    )


def restore_compared(comparing: Comparing, head: FleetHead) -> None:
    """Fill a new object."""
    while len(comparing.parents) < len(head.labels):
        comparing.parents, comparing.members = doubled(comparing.parents), doubled(comparing.members)
    for number, label in enumerate(head.labels):
        comparing.parents[number], comparing.members[number] = label.parent, label.members
        comparing.names.append(label.name)
    for each in head.standings:
        comparing.room_for_source(each.source)
        comparing.labels[each.source], comparing.returns[each.source] = each.label, each.returns
        comparing.returns_of_domain[each.domain] += each.returns
        comparing.standings[each.source] = Standing(
            each.domain, each.model, each.incarnation, each.returns_before, each.others_before, each.alone
        )
    if head.firsts:
        slots = np.frombuffer(head.firsts[0], "<i8")
        for name, column in zip(FIRST.names or (), head.firsts[1:], strict=True):
            comparing.firsts[name][slots] = np.frombuffer(column, FIRST[name])
