"""What came and went in one window, per medium and group."""

from __future__ import annotations

from msgspec.structs import astuple

from pipeline.residency import histogram
from schemas.pool_checkpoints import FlowState


def added(one: FlowState, other: FlowState) -> FlowState:
    """Return the sums of both."""
    *counts, lifetimes = astuple(one)
    *others, other_lifetimes = astuple(other)
    sums = [sum(pair) for pair in zip(counts, others, strict=True)]
    return FlowState(*[*sums, histogram.added(lifetimes, other_lifetimes)])
