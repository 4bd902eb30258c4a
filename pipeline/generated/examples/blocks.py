"""Times, names and blocks that the examples share."""

from __future__ import annotations

import struct

START = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""
INCARNATION = int(START * 1_000_000)
DOMAIN = "qwen3-32b/vllm-sha256-int64/default"

# The high bits put all of them into shard 4 of 8, the one of the residency examples.
PROMPT = (0x9C1D_5A7E_03B2_4F60, 0x8F88_2D60_C4E7_9A15, 0x93B7_C401_98FA_1D14)
"""Three blocks of one prompt, in chain order."""
ANSWER = (0x8B41_A0D9_7E26_33C8, 0x9E17_EE12_4D8A_6B07)
"""The blocks that follow them."""
LINKS = (0x1C5E_83F2_6B90_D4A7, 0x72D9_0E4B_A163_5F88)
"""Of the first two blocks of a prompt."""
COARSE = 0x9A3E_91B5_20CD_48F6
FINE = (0x8D4C_B6A2_F913_7E58, 0x88E1_37F5_6A0B_C294)
"""Fine-grained blocks of a hybrid engine, covered by COARSE."""


def packed(*hashes: int) -> bytes:
    """Return hashes as records carry them: big-endian unsigned 64-bit words."""
    return struct.pack(f">{len(hashes)}Q", *hashes)
