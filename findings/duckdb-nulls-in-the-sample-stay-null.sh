#!/bin/sh
# duckdb 2.0.1 (PyPI): read_json of lines in which a key is null for long and has values later.
#
# Guess: the values, or an error. duckdb 1.5.1 takes a column of which it saw no value for JSON, and keeps whatever comes; for
#        other types than it has inferred, read_json raises.
# Seen:  the column is of the type "NULL", and each value that comes behind the first 20,480 lines, number, text or object, is
#        read as NULL, without an error. One value among those lines, and all are there. `sample_size = -1` or `columns` help.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for version in 1.5.1 2.0.1; do
    python3 -m pip install --quiet --disable-pip-version-check --no-compile --no-warn-conflicts --root-user-action ignore --target "$dir/$version" "duckdb==$version"
done
cat > "$dir/run.py" <<'PYTHON'
import json
import sys

import duckdb

print("duckdb", duckdb.__version__)
path = f"{sys.argv[1]}/lines.ndjson"
for value in (7, "text", {"a": 1}):
    for nulls in (20_479, 20_480):
        with open(path, "w") as lines:
            for number in range(30_000):
                lines.write(json.dumps({"number": number, "value": None if number < nulls else value}) + "\n")
        read = duckdb.sql(f"FROM read_json('{path}')")
        [(count,)] = duckdb.sql("SELECT count(value) FROM read").fetchall()
        print(type(value).__name__, f"{nulls} nulls", read.types[1], f"{count} values", sep="|")
[(count,)] = duckdb.sql(f"SELECT count(value) FROM read_json('{path}', sample_size = -1)").fetchall()
print("whole file as the sample", f"{count} values", sep="|")
PYTHON
for version in 1.5.1 2.0.1; do
    PYTHONPATH="$dir/$version" python3 "$dir/run.py" "$dir"
done | tee "$dir/seen"
cat > "$dir/expected" <<'EXPECTED'
duckdb 1.5.1
int|20479 nulls|BIGINT|9521 values
int|20480 nulls|JSON|9520 values
str|20479 nulls|VARCHAR|9521 values
str|20480 nulls|JSON|9520 values
dict|20479 nulls|STRUCT(a BIGINT)|9521 values
dict|20480 nulls|JSON|9520 values
whole file as the sample|9520 values
duckdb 2.0.1
int|20479 nulls|BIGINT|9521 values
int|20480 nulls|"NULL"|0 values
str|20479 nulls|VARCHAR|9521 values
str|20480 nulls|"NULL"|0 values
dict|20479 nulls|STRUCT(a BIGINT)|9521 values
dict|20480 nulls|"NULL"|0 values
whole file as the sample|9520 values
EXPECTED
diff "$dir/expected" "$dir/seen" && echo "as described"
