"""ClickHouse: client, migrations, writer of rows, rollups."""
