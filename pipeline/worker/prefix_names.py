"""What users call hot prefixes: from the settings to the table."""

from __future__ import annotations

import time

from pipeline.clickhouse.writer import Tables
from pipeline.worker.until_taken import until_taken
from schemas.rows import PrefixNameRow
from schemas.settings import Settings


async def write_prefix_names(settings: Settings, tables: Tables) -> None:
    """Write the names as soon as ClickHouse takes them; those of earlier settings no longer count."""
    version = int(time.time() * 1000)
    rows = [PrefixNameRow("", "", version)]
    rows += [PrefixNameRow(prefix.first_block, prefix.name, version) for prefix in settings.prefixes]
    await until_taken(lambda: tables.insert(rows))
