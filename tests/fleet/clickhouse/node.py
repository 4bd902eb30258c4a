"""A ClickHouse server as a process of its own, which ends with its standard input: LIBRARY DIRECTORY."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

# clickhouse-local knows these statements since 26.6; the last one keeps it at work until the input ends.
_SERVE = (
    "SYSTEM START LISTEN HTTP; SYSTEM START LISTEN TCP; SELECT count() FROM file('/dev/stdin', LineAsString)"
)


def main(library: Path, directory: Path) -> int:
    """Serve over HTTP and the native protocol, by `directory`/config.xml, which names the ports."""
    arguments = [
        "clickhouse",
        "--multiquery",
        "--output-format=TabSeparated",
        f"--path={directory / 'data'}",
        f"--config-file={directory / 'config.xml'}",
        f"--server_logs_file={directory / 'server.log'}",
        "--log-level=error",
        f"--query={_SERVE}",
    ]
    values = (ctypes.c_char_p * len(arguments))(*(argument.encode() for argument in arguments))
    answered = ctypes.CDLL(str(library)).query_stable_v2
    answered.restype = ctypes.c_void_p
    return 0 if answered(len(arguments), values) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
