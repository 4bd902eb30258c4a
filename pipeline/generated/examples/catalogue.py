"""Example records of every topic."""

from __future__ import annotations

import msgspec

from pipeline.generated.examples.checkpoints import checkpoint_examples
from pipeline.generated.examples.choices import choice_examples
from pipeline.generated.examples.events import events_examples
from pipeline.generated.examples.figures import figures_examples
from pipeline.generated.examples.fleet_checkpoints import fleet_checkpoint_examples
from pipeline.generated.examples.positions import position_examples
from pipeline.generated.examples.residency import residency_examples
from pipeline.generated.examples.set_aside import set_aside_examples

EXAMPLES: dict[str, dict[str, msgspec.Struct]] = {
    "events": dict(events_examples()),
    "positions": dict(position_examples()),
    "residency": dict(residency_examples()),
    "choices": dict(choice_examples()),
    "figures": figures_examples(),
    "set_aside": dict(set_aside_examples()),
    "checkpoints_replica": checkpoint_examples(),
    "checkpoints_fleet": fleet_checkpoint_examples(),
}
"""Table of `topics.toml` -> name of the example -> record."""
