"""Stands in for the image clickhouse-server: an account from variables, more accounts from users.d."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from xml.sax.saxutils import escape

HOME = Path("/etc/clickhouse-server")
DATA = "/var/lib/clickhouse"
SERVE = (
    "SYSTEM START LISTEN HTTP; SYSTEM START LISTEN TCP; SELECT count() FROM file('/dev/stdin', LineAsString)"
)


def main() -> None:
    name, password = os.environ["CLICKHOUSE_USER"], os.environ["CLICKHOUSE_PASSWORD"]
    (HOME / "users.xml").write_text(
        "<clickhouse><profiles><default/></profiles><quotas><default/></quotas>"
        f"<users><{name}><password>{escape(password)}</password><networks><ip>::/0</ip></networks>"
        f"<profile>default</profile><quota>default</quota></{name}>"
        # Who serves, as `clickhouse local` does it; nobody else.
        "<default><password/><networks><ip>127.0.0.1</ip></networks><profile>default</profile>"
        "<quota>default</quota></default></users></clickhouse>"
    )
    (HOME / "config.xml").write_text(
        "<clickhouse><listen_host>0.0.0.0</listen_host><http_port>8123</http_port><tcp_port>9000</tcp_port>"
        f"<users_config>{HOME}/users.xml</users_config></clickhouse>"
    )
    # It serves until its input ends: that of this process never does.
    reading, _ = os.pipe()
    os.dup2(reading, 0)
    serve(f"--path={DATA}", f"--config-file={HOME}/config.xml", f"--query={SERVE}")


def serve(*arguments: str) -> None:
    words = ["clickhouse", "--multiquery", "--output-format=TabSeparated", *arguments]
    values = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
    ctypes.CDLL("/opt/clickhouse/libchdb.so").query_stable_v2(len(words), values)


if __name__ == "__main__":
    main()
