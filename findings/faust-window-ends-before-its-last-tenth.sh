#!/bin/sh
# faust-streaming 0.15.3: the ranges of tumbling and hopping windows.
#
# Guess: the tumbling window of ten seconds around 9.95 contains 9.95.
# Seen:  it is (0.0, 9.9), and the next one begins at 10.0: what comes in the last tenth of a second is counted in a window
#        whose range does not hold it. Of the two hopping windows around 9.95, too, the first ends at 9.9; sliding ones hold
#        their time. Whoever joins by the range, or tests `start <= time <= end`, loses one event in a hundred.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --no-compile --no-warn-conflicts --root-user-action ignore --target "$dir/lib" faust-streaming==0.15.3
cat > "$dir/run.py" <<'PYTHON'
from importlib.metadata import version

import faust

print("faust-streaming", version("faust-streaming"))
windows = (faust.TumblingWindow(10), faust.HoppingWindow(10, 5), faust.SlidingWindow(5, 5, 60))
for window in windows:
    ranges = window.ranges(9.95)
    inside = all(start <= 9.95 <= end for start, end in ranges)
    shown = " ".join(f"{start:.2f}-{end:.2f}" for start, end in ranges)
    print(type(window).__name__, shown, "holds 9.95" if inside else "does not hold 9.95", sep="|")
PYTHON
PYTHONPATH="$dir/lib" python3 "$dir/run.py" | tee "$dir/seen"
cat > "$dir/expected" <<'EXPECTED'
faust-streaming 0.15.3
TumblingWindow|0.00-9.90|does not hold 9.95
HoppingWindow|0.00-9.90 5.00-14.90|does not hold 9.95
SlidingWindow|4.95-14.95|holds 9.95
EXPECTED
diff "$dir/expected" "$dir/seen" && echo "as described"
