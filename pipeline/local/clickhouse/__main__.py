"""The embedded store as a process: `python -m pipeline.local.clickhouse --path DIR --port N`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from connectors.process.listening import PortUnavailable, listening
from pipeline.local.clickhouse.accounts import Account
from pipeline.local.clickhouse.confinement import confine
from pipeline.local.clickhouse.environment import environment_of

if TYPE_CHECKING:
    from pipeline.local.clickhouse.engine import Engine

_LONGEST_LINE = 1 << 20  # statements in the URL
_SHUTDOWN_SECONDS = 5.0


def accounts_from(environment: os._Environ[str]) -> list[Account]:
    """Return the writing account (else `default` without a password) and, if named, the read-only one.

    Passwords come by environment, since other users of a machine can read command lines.
    """
    accounts = [
        Account(
            environment.get("EMBEDDED_STORE_USER", "default"),
            environment.get("EMBEDDED_STORE_PASSWORD", ""),
            readonly=False,
        )
    ]
    reader = environment.get("EMBEDDED_STORE_READER")
    if reader:
        accounts.append(Account(reader, environment.get("EMBEDDED_STORE_READER_PASSWORD", ""), readonly=True))
    return accounts


async def serve(engine: Engine, path: Path, host: str, port: int) -> int:
    """Answer until SIGTERM or SIGINT; requests under way get a few seconds to end.

    Returns the exit code: 75 if a part of a table cannot be read, which a restart may cure.
    """
    from pipeline.local.clickhouse.broken_parts import BrokenParts
    from pipeline.local.clickhouse.http.front import Front

    ended = asyncio.Event()
    code = 0

    def end(part: str) -> None:
        nonlocal code
        code = os.EX_TEMPFAIL
        click.echo(f"a part of a table cannot be read, so the store starts again: {part}", err=True)
        ended.set()

    front = Front(engine, accounts_from(os.environ), BrokenParts(path, end).look)
    runner = await listening(
        front.application(),
        host,
        port,
        setting="--port",
        # URLs carry statements, so no link may lead here; and programs post them with any content type.
        linked=False,
        simple_bodies=True,
        # The front decodes bodies itself: aiohttp stops at the end of the first frame.
        auto_decompress=False,
        max_line_size=_LONGEST_LINE,
        max_field_size=_LONGEST_LINE,
        shutdown_timeout=_SHUTDOWN_SECONDS,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()
    await runner.cleanup()
    front.close()
    return code


@click.command()
@click.option("--path", type=click.Path(path_type=Path), required=True, help="Directory of the data.")
@click.option("--port", type=int, required=True)
@click.option("--host", default="127.0.0.1", show_default=True)
def main(path: Path, port: int, host: str) -> None:
    """Serve ClickHouse's HTTP interface over a local directory."""
    path = path.resolve()
    environment = environment_of(path)
    Path(environment["TMPDIR"]).mkdir(parents=True, exist_ok=True)
    if any(os.environ.get(name) != value for name, value in environment.items()):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **environment})
    if reason := confine(path, port):
        click.echo(f"the store is confined by its engine's rights only: {reason}", err=True)
    # Threads that the engine starts when it is imported are confined only if it comes after.
    from pipeline.local.clickhouse.engine import Engine

    try:
        engine = Engine(path)
    except Exception as error:  # the engine raises its own and plain ones; the reason is in their text
        sys.exit(f"cannot open the store at {path}: {error}")
    try:
        code = asyncio.run(serve(engine, path, host, port))
    except PortUnavailable as error:
        sys.exit(str(error))
    finally:
        engine.close()
    sys.exit(code)


if __name__ == "__main__":
    main()
