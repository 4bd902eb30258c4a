"""`kvlens index`: which replicas hold which blocks."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.cli.groups import examples
from pipeline.cli.numbers import Moment
from pipeline.cli.options import (
    config_option,
    load_running,
    log_level_option,
    require_tokens,
    running_directory_option,
)
from schemas.settings import Settings


@click.command(
    epilog=examples(
        "kvlens index --config kvlens.toml",
        "KVLENS_INDEX__PORT=0 kvlens index --data-dir .kvlens/up   # one more",
        "KVLENS_INDEX__SHARE=0/2 kvlens index   # one of two",
        "KVLENS_INDEX__TOKEN_FILE=/run/secrets/index kvlens index",
        "kvlens index --at 2026-11-23T10:00:00   # who had them then",
    )
)
@config_option
@running_directory_option
@click.option(
    "--at",
    type=Moment(),
    help="Answer as of this time, in ISO 8601 or -SECONDS from now; reads the log from its beginning.",
)
@log_level_option
def index(config: Path | None, data_dir: Path | None, at: float | None, log_level: str) -> None:
    """Answer which replica holds how much of a prompt's beginning, over HTTP.

    It listens on index.host and index.port of the settings, until you stop it.
    It starts from the workers' checkpoints and reads the log behind them; several can run side by side. It
    writes nothing but routers' choices, with index.choices. It gives no answer before it has caught up. Where
    other machines reach it, it needs index.token.
    """
    settings = load_running(config, data_dir).settings
    require_tokens(settings, "index")
    import uvloop

    from pipeline.cli.logs import configure_logs

    configure_logs(log_level)
    uvloop.run(_run(settings, at))


async def _run(settings: Settings, at: float | None) -> None:
    from connectors.process.leaving import leave
    from connectors.process.stopping import Stop
    from pipeline.index.service import serve

    stop = Stop()
    stop.at_signals()
    await serve(settings, stop, lambda url: click.echo(f"answers are on {url}"), at=at)
    # Closing a uvloop waits for pending DNS look-ups, and a resolver may take half a minute.
    leave(0)
