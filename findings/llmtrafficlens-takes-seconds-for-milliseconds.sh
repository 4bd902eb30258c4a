#!/bin/sh
# llmtrafficlens 0.13.4: Qwen-Bailian's traces, which it reads as a format of their own (--format bailian).
#
# Guess: 101 requests in 100 seconds are one request per second; the form's times are seconds, with fractions.
# Seen:  1,010 requests per second. Times are read as milliseconds, as in Mooncake's form, and their fractions cut off, so
#        every rate that rests on time is a thousand times too large. Hit rates do not depend on it.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --no-compile --no-warn-conflicts --root-user-action ignore --target "$dir/lib" llmtrafficlens==0.13.4
cat > "$dir/make.py" <<'PYTHON'
import json

for number in range(101):
    print(json.dumps({
        "chat_id": number, "parent_chat_id": -1, "timestamp": float(number), "input_length": 32, "output_length": 5,
        "type": "text", "turn": 1, "hash_ids": [0, number + 1],
    }))
PYTHON
PYTHONPATH="$dir/lib" python3 "$dir/make.py" > "$dir/trace.jsonl"
PYTHONPATH="$dir/lib" python3 -c 'from importlib.metadata import version; print("llmtrafficlens", version("llmtrafficlens"))'
PYTHONPATH="$dir/lib" python3 -c 'from llmtrafficlens.cli import main; main()' \
    profile "$dir/trace.jsonl" --format bailian -o "$dir/report" | tee "$dir/output"
grep -o '[0-9.]* req/s' "$dir/output" > "$dir/seen"
echo "1010 req/s" > "$dir/expected"
diff "$dir/expected" "$dir/seen" && echo "as described"
