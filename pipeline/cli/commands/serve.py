"""`kvlens serve`: the boards in a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from connectors.process.stopping import Stop, done_before
from pipeline.cli.failures import warn
from pipeline.cli.groups import examples
from pipeline.cli.logs import configure_logs
from pipeline.cli.options import config_option, load_running, require_tokens, running_directory_option
from schemas.settings import ClickHouse, Settings

_LOOK_SECONDS = 10.0
"""How long broker and store may take to answer the doctor."""


@click.command(
    epilog=examples(
        "kvlens serve --config kvlens.toml",
        "KVLENS_PAGE__PORT=9000 kvlens serve",
        "KVLENS_PAGE__TOKEN_FILE=/run/secrets/page kvlens serve",
    )
)
@config_option
@running_directory_option
def serve(config: Path | None, data_dir: Path | None) -> None:
    """Show the boards in a browser, without Grafana.

    It listens on page.host and page.port of the settings, until you stop it.
    It reads ClickHouse, and Kafka for the findings on Pipeline health; it needs no worker. It listens on
    127.0.0.1 unless set otherwise. Where other machines reach it, it needs page.token. Without ClickHouse it
    says why, once, and shows the boards as soon as it answers.
    """
    from pipeline.local.run_file import read_on_purpose

    on_purpose = read_on_purpose(data_dir)
    settings = load_running(config, data_dir).settings
    require_tokens(settings, "page")
    configure_logs("info", libraries=False)
    asyncio.run(_serve(settings, on_purpose))


async def _serve(settings: Settings, on_purpose: Mapping[str, str]) -> None:
    from pipeline.dashboards.page.answers import Answers
    from pipeline.dashboards.page.findings import Findings
    from pipeline.dashboards.page.server import Page

    async def look() -> dict[str, Any]:
        return await _findings(settings, on_purpose)

    page = Page(
        Answers(settings.clickhouse, settings.page.panel_seconds),
        settings.page.host,
        settings.page.port,
        findings=Findings(look),
        token=settings.page.token,
    )
    stopped = Stop()
    stopped.at_signals()
    pushes = []
    if settings.otlp.endpoint:
        from pipeline.otlp.push import Push

        pushes.append(Push(settings.otlp.endpoint, page.fleet.figures, page.registry))
    await page.start()
    tasks = [asyncio.create_task(each.run()) for each in pushes]
    try:
        click.echo(f"boards are on {page.url}")
        if await done_before(stopped, asyncio.create_task(_tell_unless_usable(settings.clickhouse))):
            await stopped.wait()
    finally:
        for task in tasks:
            task.cancel()
        await page.stop()


async def _findings(settings: Settings, on_purpose: Mapping[str, str]) -> dict[str, Any]:
    """Return what `kvlens doctor --json` finds, without the figures of each source."""
    from pipeline.doctor.diagnosis import diagnose
    from pipeline.doctor.examine import examine
    from pipeline.doctor.report import as_json

    facts = await examine(settings, _LOOK_SECONDS)
    whole = as_json(facts, diagnose(facts, on_purpose))
    return {name: whole[name] for name in ("verdict", "at", "findings")}


async def _tell_unless_usable(store: ClickHouse) -> None:
    """Look once for what every board needs, so that a wrong password is reported in this terminal."""
    from connectors.process.errors import OperatorError
    from connectors.process.leaving import aside
    from pipeline.clickhouse.migrations import missing
    from pipeline.errors import TablesMissing

    try:
        # In a thread of its own, so that a store that hangs does not hold up the exit.
        if lacking := await aside(lambda: missing(store)):
            raise TablesMissing(store.database, lacking)
    except OperatorError as error:
        warn(str(error))
