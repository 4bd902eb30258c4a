"""Stands in for the image apache/kafka: settings from variables, storage formatted once, one JVM."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HOME = Path("/opt/kafka")
JVM = ("-Xmx192m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError")
BOUNDS = {"log.cleaner.dedupe.buffer.size": "4194304", "log.cleaner.threads": "1"}
"""The default buffer is larger than the heap."""


def main() -> None:
    given = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in os.environ.items()
        if name.startswith("KAFKA_")
    }
    settings = Path("/tmp/server.properties")
    settings.write_text("".join(f"{name}={value}\n" for name, value in {**BOUNDS, **given}.items()))
    java = (str(HOME / "java" / "bin" / "java"), *JVM, "-cp", str(HOME / "jars" / "*"))
    if not Path(given["log.dirs"], "meta.properties").exists():
        cluster = os.environ["CLUSTER_ID"]
        tool = ("kafka.tools.StorageTool", "format", "--config", str(settings), "--cluster-id", cluster)
        subprocess.run([*java, *tool], check=True)
    os.execv(java[0], [*java, "kafka.Kafka", str(settings)])


if __name__ == "__main__":
    main()
