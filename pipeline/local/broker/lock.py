"""Writes a new jar lock, to move to another Kafka: `python -m pipeline.local.broker.lock ENDPOINT`."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from jgo.maven import MavenContext, PythonResolver
from jgo.parse import Endpoint

from pipeline.local.broker.jars import LOCK


def lock_text(endpoint: str) -> str:
    """Resolve `group:artifact:version+...` and its run-time dependencies; return the text of a lock file."""
    context = MavenContext(resolver=PythonResolver())
    wanted = [context.create_dependency(coordinate) for coordinate in Endpoint.parse(endpoint).coordinates]
    inputs, transitive = context.resolver.resolve(wanted)
    lines = ["# Made by python -m pipeline.local.broker.lock", f'endpoint = "{endpoint}"']
    for artifact in sorted((each.artifact for each in [*inputs, *transitive]), key=lambda each: str(each)):
        digest = hashlib.sha256(Path(artifact.resolve()).read_bytes()).hexdigest()
        lines += [
            "",
            "[[jars]]",
            f'group = "{artifact.groupId}"',
            f'artifact = "{artifact.artifactId}"',
            f'version = "{artifact.version}"',
            f'sha256 = "{digest}"',
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    LOCK.write_text(lock_text(sys.argv[1]))
