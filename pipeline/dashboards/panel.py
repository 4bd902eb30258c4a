"""What a panel, a board and an alert rule are, independent of what shows them."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from connectors.process.errors import DataError

Kind = Literal[
    "stat",
    "timeseries",
    "stacked",
    "heatmap",
    "bar",
    "table",
    "state_timeline",
    "curve",
    "lanes",
    "flow",
    "answer",
    "findings",
]
"""How to read the rows of a panel:

`stat`: one row, each column a figure. `timeseries`, `stacked`: `time`, at most one text column that names
the series, figures. `heatmap`: `time`, `bucket` (upper bound, in the panel's unit), `value`. `bar`: a text
column, figures: parts of a whole, so they are stacked, unless the unit is `share`. `table`: as it is.
`state_timeline`: `time`, the row's name, `state`, which is a key of `colours`. `curve`: a text column that
names it, an amount, the same in bytes (0 where unknown), what this saves at least, the same in percent, how
many percent any amount saves at most, and whether this is the knee; amounts ascend, and are NULL in the one
row of a curve that is not known. `lanes`: `time`, `place` (a text, by which lanes are sorted), the lane's
name, a share or NULL. `flow`: `from`, `into`, a key of `colours`, and tokens: the first row's `from` is the
whole, and what comes into a part goes out of it again if anything does. `answer`: a card for each row of
texts `title`, `figure`, `detail`, `change`. `findings`: `#`, texts `finding`, `what to do`, `worth`,
`but`, then `model`, `replica` and the board that it is `shown on`.
"""
Unit = Literal[
    "blocks",
    "tokens",
    "bytes",
    "batches",
    "sources",
    "blocks/s",
    "tokens/s",
    "events/s",
    "seconds",
    "share",
    "GPUs",
    "GPU-hours",
]
"""`share` is 0 to 1 and shown as percent."""
Choice = Literal["model", "role", "replica"]
"""What a viewer may choose on a board; each is a parameter of type Array(String), empty for all."""
Named = Literal["", "model", "replica", "source"]
"""What a name stands for; it links to the board of that. A source is called `replica/rank`."""
Severity = Literal["warning", "critical"]

COLUMNS = 24
"""Width of a board."""
PARAMETERS = {
    "from": "DateTime('UTC')",
    "to": "DateTime('UTC')",
    "step": "UInt32",
    "model": "Array(String)",
    "replica": "Array(String)",
    "role": "Array(String)",
}
"""Everything that a panel's SQL may ask for. `step` is the width of a point of time, in seconds."""

_PARAMETER = re.compile(r"\{(\w+):([\w()']+)\}")


class Threshold(msgspec.Struct, frozen=True):
    """From `at` on, in the panel's unit, a figure has this colour."""

    at: float
    colour: Literal["green", "yellow", "orange", "red"]


class Shared(msgspec.Struct, frozen=True):
    """An expensive statement that answers several panels at once; each shows its part of the rows."""

    id: str
    sql: str
    """Its column `part` says for which panel a row is."""
    columns: tuple[str, ...]


class Trend(msgspec.Struct, frozen=True):
    """A small curve on the card `title`: over time, the share of `series` in a stacked panel."""

    title: str
    panel: str
    """Its id; it is on the same board."""
    series: tuple[str, ...]
    without: tuple[str, ...] = ()
    """Series that do not count towards the whole."""


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One question, the SQL that answers it and how the answer is drawn."""

    id: Annotated[str, Meta(pattern="^[a-z][a-z0-9-]*$")]
    """Unique among all boards."""
    title: str
    description: str
    """What the figure means and how exact it is."""
    unit: Unit
    kind: Kind
    sql: str
    """ClickHouse, with no parameters but PARAMETERS; table names without the database."""
    width: Annotated[int, Meta(ge=3, le=COLUMNS)] = 12
    height: Annotated[int, Meta(ge=3, le=20)] = 8
    thresholds: tuple[Threshold, ...] = ()
    """Ascending; below the first one a figure is neutral."""
    colours: dict[str, str] = {}
    """Series name to CSS colour, where a series has one meaning on every board."""
    named_by: str = ""
    """The text column whose values are the names of series or lanes; empty where columns name them."""
    low_is_bad: bool = False
    """Of `lanes`: the worst lane is the one with the lowest share."""
    names: Named = ""
    """What the names of its series, bars or lanes stand for."""
    empty: str = ""
    """What it means if there is no row, unless data are missing."""
    shared: Shared | None = None
    """Asked once by a viewer of all its panels; `sql` alone gives columns `shows` of the rows of `part`."""
    part: str = ""
    shows: dict[str, str] = {}
    """Columns of the panel, and those of the shared statement that have their values."""
    trend: Trend | None = None
    """Of one of the cards of an `answer`."""


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """Moments worth marking on every panel of a board."""

    id: str
    title: str
    sql: str
    """Columns `time`, `text`."""


class Section(msgspec.Struct, frozen=True):
    """Panels under one heading, laid out from left to right and down."""

    title: str
    panels: tuple[Panel, ...]


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """A page of panels that answers one kind of question."""

    id: Annotated[str, Meta(pattern="^[a-z][a-z-]*$")]
    title: str
    description: str
    choices: tuple[Choice, ...]
    sections: tuple[Section, ...]
    annotations: tuple[Annotation, ...] = ()

    @property
    def panels(self) -> tuple[Panel, ...]:
        return tuple(panel for section in self.sections for panel in section.panels)


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that needs attention."""

    id: Annotated[str, Meta(pattern="^[a-z][a-z0-9-]*$")]
    title: str
    description: str
    """What happened and what it means for the figures or the fleet."""
    sql: str
    """Text columns that name the case and one figure `value`; the only parameters are `from` and `to`."""
    above: float
    """The alert fires for each row whose value is greater."""
    for_minutes: Annotated[int, Meta(ge=0)]
    """How long it must hold."""
    over_minutes: Annotated[int, Meta(ge=1)]
    """Length of the range `from`..`to`, which ends now."""
    severity: Severity
    runbook: str
    """Anchor in docs/alerts.md."""
    about: tuple[str, ...] = ()
    """The text columns of `sql`: they name what the alert fires for."""
    panel: str
    """Id of the panel that shows the case."""
    metrics: str = ""
    """The same in PromQL, for those who alert in Prometheus; empty where no metric shows it."""


class UnknownParameter(DataError):
    """SQL asks for a parameter that no viewer provides."""

    panel: str
    parameter: str
    line = "panel {panel}: no viewer provides {parameter}"


def used_parameters(owner: str, sql: str) -> dict[str, str]:
    """Return name → type of the parameters in `sql` of panel or alert `owner`; raises UnknownParameter."""
    used: dict[str, str] = dict(_PARAMETER.findall(sql))
    for name, kind in used.items():
        # A time may also be without a zone: it is then in the zone of the client.
        if PARAMETERS.get(name) not in (kind, f"{kind}('UTC')"):
            raise UnknownParameter(owner, f"{{{name}:{kind}}}")
    return used
