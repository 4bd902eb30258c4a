#!/bin/sh
# zstandard 0.25.0 (PyPI): the stream reader on a file that was cut off.
#
# Guess: an error, as gzip has one (EOFError), when the data end within a frame.
# Seen:  the reader says that the file ends there. Of a frame cut in its first block nothing is read at all, of one cut later
#        what came before, and read() returns b"" ever after: a whole file and a torn one look alike. `decompressobj` does
#        not raise either, but its `eof` stays False, which tells them apart.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --no-compile --no-warn-conflicts --root-user-action ignore --target "$dir/lib" zstandard==0.25.0
cat > "$dir/run.py" <<'PYTHON'
import gzip
import io

import zstandard

print("zstandard", zstandard.__version__)
lines = b"".join(b"line %d\n" % number for number in range(100_000))
packed = zstandard.compress(lines)
for name, part in (("whole", packed), ("cut", packed[: len(packed) // 2]), ("cut early", packed[:100])):
    reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(part))
    read = reader.read()
    decoder = zstandard.ZstdDecompressor().decompressobj()
    decoder.decompress(part)
    shown = "all" if read == lines else "a part" if read and lines.startswith(read) else "nothing" if not read else "other"
    print(name, shown, repr(reader.read()), f"eof {decoder.eof}", sep="|")
zipped = gzip.compress(lines)
try:
    gzip.GzipFile(fileobj=io.BytesIO(zipped[: len(zipped) // 2])).read()
except EOFError as error:
    print("gzip", type(error).__name__, sep="|")
PYTHON
PYTHONPATH="$dir/lib" python3 "$dir/run.py" | tee "$dir/seen"
cat > "$dir/expected" <<'EXPECTED'
zstandard 0.25.0
whole|all|b''|eof True
cut|a part|b''|eof False
cut early|nothing|b''|eof False
gzip|EOFError
EXPECTED
diff "$dir/expected" "$dir/seen" && echo "as described"
