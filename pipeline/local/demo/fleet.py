"""The simulated fleet of `kvlens demo`: small engines of different kinds, full within seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pipeline.local.demo.story import STORY
from pipeline.local.directory import DataDirectory
from pipeline.local.processes.command import CommandProcess
from pipeline.local.processes.supervisor import Supervisor
from pipeline.simulator.config_file import ReplicaAddress, replicas_toml
from pipeline.simulator.traffic.workload import WorkloadSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MODEL = "demo-8b"
HYBRID_MODEL = "demo-hybrid"
PAIR_MODEL = "demo-pair"
_MODELS = f"""[[models]]
name = "{MODEL}"
kv_bytes_per_token = 131072
gpus_per_replica = 1
gpu_hour_price = 2.5

[[models]]
name = "{PAIR_MODEL}"
kv_bytes_per_token = 131072
gpus_per_replica = 1
gpu_hour_price = 2.5

[[models]]
name = "{HYBRID_MODEL}"
gpus_per_replica = 4
gpu_hour_price = 2.5
"""
"""Bytes per token: 32 layers of 8 heads of 128 numbers of 2 bytes, for keys and for values."""
_FRESH = """[connector]
linger_seconds = 0.05

[worker]
checkpoint_seconds = 0.5
"""
"""Fresh figures cost little with a few engines; docs/sizing.md has the price for a large fleet."""
_START_SECONDS = 30.0
_WAIT_SUBSCRIBERS_SECONDS = 3600
"""The engines publish once the connector listens, which may have to wait for a first download."""
_REPLAY_OFFSET = 10
_METRICS_OFFSET = 20
_PORTS = 21


@dataclass(frozen=True)
class Group:
    """Engines of one `kvlens simulate` process and the names they get."""

    name: str
    replicas: tuple[str, ...]
    options: tuple[str, ...]


_COMMON = ("--steps-per-second", "10")
TIERED_TRAFFIC = WorkloadSettings(seed=1, system_prompt_tokens=256)
"""The settings that determine the system prompts of the first group."""
_SHORT_CHATS = (
    *("--system-prompt-tokens", str(TIERED_TRAFFIC.system_prompt_tokens), "--max-prompt-tokens", "1800"),
    *("--user-tokens", "100", "--output-tokens", "30", "--routing", "sticky"),
)
GROUPS = (
    Group(
        "fleet-tiered",
        ("vllm-0.14-cpu", "vllm-0.33-cpu"),
        (
            *("--replicas", "2", "--era", "vllm-0.14", "--era", "vllm-0.33", "--model", MODEL),
            *("--blocks", "450", "--cpu-blocks", "600", "--rate", "5", "--lora-share", "0.1"),
            *("--seed", str(TIERED_TRAFFIC.seed)),
            *_SHORT_CHATS,
        ),
    ),
    Group(
        "fleet-ranks",
        ("vllm-0.24-dp2", "vllm-0.24-small"),
        (
            *("--replicas", "2", "--dp-ranks", "2", "--era", "vllm-0.24", "--model", MODEL),
            # The second one does not even have room for the conversations that are paused at any time.
            *("--blocks", "400", "--blocks", "200", "--rate", "6", "--seed", "2"),
            *_SHORT_CHATS,
        ),
    ),
    Group(
        "fleet-pair",
        ("vllm-0.33-prefill", "vllm-0.33-decode"),
        (
            *("--replicas", "2", "--prefill", "1", "--era", "vllm-0.33", "--model", PAIR_MODEL),
            # The first one's CPU tier keeps what its GPU has no room for.
            *("--blocks", "300", "--blocks", "450", "--cpu-blocks", "600", "--rate", "2", "--seed", "4"),
            *_SHORT_CHATS,
        ),
    ),
    Group(
        "fleet-hybrid",
        ("vllm-0.33-hybrid",),
        (
            *("--replicas", "1", "--hybrid", "1", "--era", "vllm-0.33", "--model", HYBRID_MODEL),
            # Long prompts: a block of such an engine has 2176 tokens.
            *("--hybrid-blocks", "24", "--rate", "2", "--seed", "3"),
            *("--system-prompt-tokens", "2300", "--max-prompt-tokens", "9000", "--user-tokens", "400"),
        ),
    ),
)


def start_fleet(supervisor: Supervisor, directory: DataDirectory) -> Path:
    """Start the engines; return the kvlens.toml that points at them.

    Raises ProcessFailed, DirectoryInUse.
    """
    started = [_launch(group, supervisor, directory) for group in GROUPS]
    replicas: list[ReplicaAddress] = []
    for group, (process, written) in zip(GROUPS, started, strict=True):
        process.wait_ready()
        for name, replica in zip(group.replicas, _tables(written), strict=True):
            replicas.append(msgspec.convert({**replica, "id": name}, ReplicaAddress))
    config = directory.path / "demo.toml"
    config.write_text(f"{replicas_toml(replicas)}\n{_MODELS}\n{_FRESH}")
    return config


def _launch(group: Group, supervisor: Supervisor, directory: DataDirectory) -> tuple[CommandProcess, Path]:
    """Launch the engines of a group; return their process and the file that will say where they listen."""
    written = directory.path / f"{group.name}.toml"
    written.unlink(missing_ok=True)
    base = supervisor.ports.any(_PORTS)
    addresses = (
        *("--base-port", str(base), "--replay-base-port", str(base + _REPLAY_OFFSET)),
        *("--metrics-port", str(base + _METRICS_OFFSET), "--write-config", str(written)),
        *("--wait-subscribers", str(_WAIT_SUBSCRIBERS_SECONDS)),
    )
    process = CommandProcess(
        group.name,
        ("simulate", *group.options, *_COMMON, *_changes(group.name), *addresses),
        directory.path / group.name,
        directory.logs,
        environment={},
        ready=_listed(written, len(group.replicas)),
        start_seconds=_START_SECONDS,
    )
    supervisor.launch(group.name, process)
    return process, written


def _changes(process: str) -> tuple[str, ...]:
    return tuple(option for chapter in STORY for option in chapter.options(process))


def _listed(written: Path, replicas: int) -> Callable[[], bool]:
    """Return a check for whether the engines listen: they do once they have written where."""
    return lambda: len(_tables(written)) == replicas


def _tables(written: Path) -> list[dict[str, Any]]:
    """Return the `[[replicas]]` of the file; none while it does not exist or is incomplete."""
    try:
        tables: list[dict[str, Any]] = tomllib.loads(written.read_text()).get("replicas", [])
    except (FileNotFoundError, tomllib.TOMLDecodeError):
        return []
    # The last key of a table is written last.
    return tables if all("hash_scheme" in table for table in tables) else []
