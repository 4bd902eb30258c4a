"""What an alert rule makes of a result: a figure for each set of labels, whether it fires, what is written.

Rules as written in grafana/grafana, `pkg/expr/converter.go` (`isNumberTable`, `extractNumberSet`),
`pkg/services/ngalert/state/template` (`$labels`, `$values`, `externalURL`, `reReplaceAll`) and
`pkg/services/provisioning/alerting/rules_types.go`: annotations come as they are in the file, only
`${...}` is replaced; as stored in November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.support.grafana.frames import Frame

_CALL = re.compile(r'\{\{ reReplaceAll "([^"]*)" "([^"]*)" externalURL \}\}')


class NoNumbers(Exception):
    """A frame is neither a series nor a table of one figure and texts."""


class Instance(NamedTuple):
    labels: dict[str, str]
    value: float
    fires: bool
    annotations: dict[str, str]


def instances(rule: Mapping[str, Any], frames: Sequence[Frame], root: str) -> list[Instance]:
    """Return the instances of a rule on a Grafana whose address is `root`; raises NoNumbers."""
    (frame,) = frames
    figures = frame.of_type("number")
    texts = frame.of_type("string")
    if len(figures) != 1 or len(texts) + 1 != len(frame.fields):
        raise NoNumbers(frame.name)
    _, reduced, compared = rule["data"]
    assert reduced["model"]["reducer"] == "last"
    ((condition),) = compared["model"]["conditions"]
    assert condition["evaluator"]["type"] == "gt"
    (limit,) = condition["evaluator"]["params"]
    found = []
    for row, value in enumerate(figures[0].values):
        labels = {text.name: text.values[row] for text in texts}
        written = {
            name: expanded(template, labels, value, root) for name, template in rule["annotations"].items()
        }
        found.append(Instance(labels, value, value > limit, written))
    return found


def expanded(template: str, labels: Mapping[str, str], value: float, root: str) -> str:
    """Return the text of an annotation; what no rule here expands fails."""
    text = _CALL.sub(lambda found: re.sub(found[1], found[2], root), template)
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels.get(found[1], "[no value]"), text)
    text = text.replace("{{ $values.B }}", f"{value:g}")
    assert "{{" not in text, text
    return text
