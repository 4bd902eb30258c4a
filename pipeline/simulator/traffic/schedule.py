"""What happens to a simulated fleet while it runs, and when: routing, restarts, lost batches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from connectors.process.errors import DataError
from pipeline.simulator.traffic.routing import ROUTINGS, Routing

Loss = Literal["drop", "lose"]
"""`drop`: lost on the wire; `lose`: never encoded, so that only its number is used up."""


@dataclass(frozen=True, slots=True)
class Rerouting:
    """Later requests are routed differently."""

    routing: Routing


@dataclass(frozen=True, slots=True)
class Restart:
    """Every rank of the replica begins a new engine session; what it was doing is lost."""

    replica: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The next `batches` of rank 0 do not arrive; after `drop` replay still has them."""

    replica: int
    batches: int
    loss: Loss


Change = Rerouting | Restart | Lost


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A change that comes after `seconds` of traffic."""

    seconds: float
    change: Change
    text: str
    """As it was given."""


class ScheduleError(DataError, ValueError):
    """A change that cannot be parsed, or of a replica that does not exist."""

    text: str
    reason: str
    line = "{text}: {reason}"


_NUMBER = r"\d{1,9}"
_FORM = re.compile(
    rf"(?P<seconds>{_NUMBER}(\.\d+)?):(?P<action>\w+)=(?P<what>[\w-]+)(,(?P<batches>{_NUMBER}))?", re.ASCII
)


def scheduled(text: str, replicas: int) -> Scheduled:
    """Return the change that `SECONDS:ACTION=WHAT` names in a fleet of `replicas`; raises ScheduleError.

    Actions: `routing=NAME`, `restart=REPLICA`, `drop=REPLICA,BATCHES`, `lose=REPLICA,BATCHES`; replicas are
    numbered from 0.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ScheduleError(text, "is not of the form SECONDS:ACTION=WHAT")
    return Scheduled(float(found["seconds"]), _change(text, found, replicas), text)


def _change(text: str, found: re.Match[str], replicas: int) -> Change:
    action, what = found["action"], found["what"]
    if action == "routing":
        for routing in ROUTINGS:
            if what == routing:
                return Rerouting(routing)
        raise ScheduleError(text, f"the routings are {', '.join(ROUTINGS)}")
    if not re.fullmatch(_NUMBER, what, re.ASCII) or int(what) >= replicas:
        raise ScheduleError(text, f"the replicas are 0 to {replicas - 1}")
    if action == "restart":
        return Restart(int(what))
    if action not in ("drop", "lose") or found["batches"] is None:
        raise ScheduleError(
            text, "the actions are routing and restart, and with a count of batches drop and lose"
        )
    return Lost(int(what), int(found["batches"]), "drop" if action == "drop" else "lose")
