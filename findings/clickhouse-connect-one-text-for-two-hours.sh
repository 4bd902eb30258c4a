#!/bin/sh
# clickhouse-connect 1.12.0: aware datetimes as parameters, on a server in a zone with summer time.
#
# Guess: two moments that are an hour apart are bound as two different values.
# Seen:  in the night when the clocks of the server's zone go back, both are sent as '2026-11-01 01:30:00', the text of
#        that zone without its offset; on a server in UTC they differ. So a range of that one hour is empty, and one that
#        ends in the second 01:30 ends an hour too early, although both datetimes said exactly what they meant.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --no-compile --no-warn-conflicts --root-user-action ignore --target "$dir/lib" clickhouse-connect==1.12.0 tzdata==2025.2
cat > "$dir/run.py" <<'PYTHON'
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from zoneinfo import ZoneInfo

from clickhouse_connect.driver.binding import bind_query

print("clickhouse-connect", version("clickhouse-connect"))
since = datetime(2026, 11, 1, 5, 30, tzinfo=timezone.utc)
moments = {"since": since, "until": since + timedelta(hours=1)}
query = "SELECT count() FROM t WHERE at >= {since:DateTime} AND at < {until:DateTime}"
for zone in ("UTC", "America/New_York"):
    bound = bind_query(query, moments, ZoneInfo(zone))[1]
    print(zone, bound["param_since"], bound["param_until"], sep="|")
PYTHON
PYTHONPATH="$dir/lib" python3 "$dir/run.py" | tee "$dir/seen"
cat > "$dir/expected" <<'EXPECTED'
clickhouse-connect 1.12.0
UTC|2026-11-01 05:30:00|2026-11-01 06:30:00
America/New_York|2026-11-01 01:30:00|2026-11-01 01:30:00
EXPECTED
diff "$dir/expected" "$dir/seen" && echo "as described"
