"""What an engine knows about itself, as JSON, for tests that compare what others made of its events."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pipeline.simulator.engine.scheduler import Engine
from pipeline.simulator.wire.hashing import HashForm, rendered


def wire_hash(digest: bytes, form: HashForm, medium: str = "gpu") -> int | str:
    """Return a hash as the wire shows it; bytes as hex, since JSON has none."""
    shown = rendered(digest, form, medium)
    return shown.hex() if isinstance(shown, bytes) else shown


def checkpoint(engine: Engine, sequence: int) -> list[int]:
    """Return `[seq, gpu distinct, gpu physical, cpu entries, live fine blocks]` after that batch."""
    return [sequence, engine.pool.distinct, engine.pool.physical, len(engine.cpu), len(engine.fine)]


CHECKPOINT_COLUMNS = ("seq", "gpu_distinct", "gpu_physical", "cpu_blocks", "fine_blocks")


def engine_truth(engine: Engine, form: HashForm, last_sequence: int | None) -> dict[str, Any]:
    """Return the state of one engine session.

    `resident`: per medium rows `[group, hash, copies]`; `fine`: rows
    `[group, hash, [covering coarse hashes]]`, with an empty list where no coarse block covers it yet;
    `counters`: tokens and blocks since the start.
    """
    settings = engine.settings
    gpu = sorted(
        ([group, wire_hash(digest, form), copies] for (group, digest), copies in engine.pool.copies()),
        key=str,
    )
    cpu = sorted(([0, wire_hash(digest, form, "cpu"), 1] for digest in engine.cpu), key=str)
    fine = sorted(
        (
            [0, wire_hash(digest, form), sorted(wire_hash(coarse, form) for coarse in covers)]
            for digest, covers in engine.fine.rows()
        ),
        key=str,
    )
    entries = {settings.block_size: engine.pool.physical}
    if settings.fine_block_size is not None:
        entries[settings.fine_block_size] = len(engine.fine)
    return {
        "last_seq": last_sequence,
        "block_size": settings.block_size,
        "fine_block_size": settings.fine_block_size,
        "num_gpu_blocks": settings.num_blocks,
        "resident": {"gpu": gpu, "cpu": cpu},
        "fine": fine,
        "gpu_entries_by_block_size": {str(size): count for size, count in entries.items()},
        "counters": {**asdict(engine.counters), "cpu_evicted_blocks": engine.cpu.evicted},
    }
