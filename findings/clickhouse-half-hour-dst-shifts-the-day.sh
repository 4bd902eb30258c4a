#!/bin/sh
# ClickHouse 26.9.2.1 (chdb 4.4.0, chdb-core 26.9.0): toStartOfHour where summer time is half an hour.
#
# Guess: an hour begins when the local clock shows full hours, also in Australia/Lord_Howe, whose clocks go back half an hour.
# Seen:  from the change on 2026-04-05 until midnight every hour begins at half past: 03:00 belongs to the hour "02:30".
#        toStartOfInterval of one hour does the same; of 30 minutes, and of two hours, it goes by the local clock.
#        In Asia/Kolkata, whose offset has half an hour all year, hours are full.
# So:    figures by the hour in such a zone have other edges on two days of the year; by the UTC hour they have none of it.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --no-compile --no-warn-conflicts --root-user-action ignore --target "$dir/lib" chdb==4.4.0 chdb-core==26.9.0
cat > "$dir/run.py" <<'PYTHON'
import chdb

print(chdb.query("SELECT version()", "TSV").bytes().decode().strip())
print(chdb.query("""
    WITH toTimeZone(arrayJoin([
        toDateTime('2026-04-04 14:30:00', 'UTC'), toDateTime('2026-04-04 16:30:00', 'UTC'),
        toDateTime('2026-04-05 12:00:00', 'UTC'), toDateTime('2026-04-05 14:00:00', 'UTC')
    ]), 'Australia/Lord_Howe') AS local
    SELECT local, toStartOfHour(local), toStartOfInterval(local, INTERVAL 1 HOUR),
        toStartOfInterval(local, INTERVAL 30 MINUTE), toStartOfInterval(local, INTERVAL 2 HOUR)
    ORDER BY toUnixTimestamp(local)""", "TSV").bytes().decode().strip())
kolkata = "toTimeZone(toDateTime('2026-04-05 12:00:00', 'UTC'), 'Asia/Kolkata')"
print(chdb.query(f"SELECT {kolkata}, toStartOfHour({kolkata})", "TSV").bytes().decode().strip())
PYTHON
PYTHONPATH="$dir/lib" python3 "$dir/run.py" | tr '\t' '|' | tee "$dir/seen"
cat > "$dir/expected" <<'EXPECTED'
26.9.2.1
2026-04-05 01:30:00|2026-04-05 01:00:00|2026-04-05 01:00:00|2026-04-05 01:30:00|2026-04-05 00:00:00
2026-04-05 03:00:00|2026-04-05 02:30:00|2026-04-05 02:30:00|2026-04-05 03:00:00|2026-04-05 02:00:00
2026-04-05 22:30:00|2026-04-05 22:30:00|2026-04-05 22:30:00|2026-04-05 22:30:00|2026-04-05 22:00:00
2026-04-06 00:30:00|2026-04-06 00:00:00|2026-04-06 00:00:00|2026-04-06 00:30:00|2026-04-06 00:00:00
2026-04-05 17:30:00|2026-04-05 17:00:00
EXPECTED
diff "$dir/expected" "$dir/seen" && echo "as described"
