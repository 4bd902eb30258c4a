"""The whole Mooncake conversation trace as the file that it was."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

from tests.support.checkout import TRACES

PACKED = TRACES / "mooncake_conversation.ranges.gz"


def unpack(path: Path) -> None:
    """Write the trace as JSON lines."""
    with gzip.open(PACKED, "rt") as packed, path.open("w") as trace:
        for line in packed:
            timestamp, input_length, output_length, ranges = line.split()
            ids = [
                hash_id
                for first, last in (part.split("-") for part in ranges.split(","))
                for hash_id in range(int(first), int(last) + 1)
            ]
            fields = {
                "timestamp": int(timestamp),
                "input_length": int(input_length),
                "output_length": int(output_length),
                "hash_ids": ids,
            }
            trace.write(json.dumps(fields) + "\n")


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
    print(f"{sys.argv[1]}: 12,031 requests of an hour")  # noqa: T201 - for whoever called make
