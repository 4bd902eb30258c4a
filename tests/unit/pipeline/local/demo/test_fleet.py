"""The demo's fleet: what it asks of `kvlens simulate` is understood, and has the replicas that it names."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.cli.commands.simulate import simulate
from pipeline.local.demo import fleet
from pipeline.local.demo.fleet import GROUPS, Group


def understood(group: Group) -> dict[str, Any]:
    with simulate.make_context("simulate", [*group.options]) as context:
        return context.params


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_a_group_has_a_name_for_each_replica(group: Group) -> None:
    assert understood(group)["replicas"] == len(group.replicas)


def test_one_model_is_a_pair_of_which_the_first_computes_prompts_and_has_a_cpu_tier() -> None:
    models = [understood(group)["model"] for group in GROUPS]
    (pair,) = (group for group in GROUPS if understood(group)["prefill"])
    asked = understood(pair)
    assert pair.replicas == ("vllm-0.33-prefill", "vllm-0.33-decode")
    assert (asked["prefill"], asked["cpu_blocks"] > 0) == (1, True)
    assert models.count(asked["model"]) == 1, "no other engine can have its blocks"
    assert {f'name = "{model}"' for model in models} <= {*fleet._MODELS.splitlines()}
