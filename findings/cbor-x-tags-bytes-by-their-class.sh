#!/bin/sh
# cbor-x 1.6.9 (npm) beside cbor2 6.3.0 (PyPI): what vLLM's sha256_cbor hashes, (parent's digest, token ids, extra keys).
#
# Guess: the same bytes make the same CBOR, so Node can compute the hash that Python computes.
# Seen:  a Uint8Array is written with tag 64 before it, a Buffer (a subclass of it) without; cbor2 writes bytes without. A
#        parent's digest from WebCrypto is a Uint8Array, so every block but the first gets another hash than in vLLM.
#        Token ids from 2^32 on, had a model that many, would be floats in cbor-x and integers in cbor2.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
npm install --silent --no-audit --no-fund --prefix "$dir" cbor-x@1.6.9
python3 -m pip install --quiet --disable-pip-version-check --no-compile --no-warn-conflicts --root-user-action ignore --target "$dir/lib" cbor2==6.3.0
cat > "$dir/run.js" <<'NODE'
const { encode } = require("cbor-x");
const hex = (value) => Buffer.from(encode(value)).toString("hex");
console.log("cbor-x", require(`${__dirname}/node_modules/cbor-x/package.json`).version);
console.log("Uint8Array", hex([new Uint8Array([1, 2, 3]), [5, 6], null]));
console.log("Buffer    ", hex([Buffer.from([1, 2, 3]), [5, 6], null]));
console.log("2^32      ", hex(2 ** 32));
NODE
cat > "$dir/run.py" <<'PYTHON'
from importlib.metadata import version

import cbor2

print("cbor2", version("cbor2"))
print("bytes     ", cbor2.dumps((b"\1\2\3", (5, 6), None), canonical=True).hex())
print("2^32      ", cbor2.dumps(2**32, canonical=True).hex())
PYTHON
{ node "$dir/run.js" && PYTHONPATH="$dir/lib" python3 "$dir/run.py"; } | tee "$dir/seen"
cat > "$dir/expected" <<'EXPECTED'
cbor-x 1.6.9
Uint8Array 83d84043010203820506f6
Buffer     8343010203820506f6
2^32       fb41f0000000000000
cbor2 6.3.0
bytes      8343010203820506f6
2^32       1b0000000100000000
EXPECTED
diff "$dir/expected" "$dir/seen" && echo "as described"
