#!/bin/sh
# @msgpack/msgpack 3.1.3 and msgpackr 2.1.4 (npm): a map whose keys are unsigned integers of 64 bits, such as block hashes.
#
# Guess: two entries, or an error that says why not.
# Seen:  @msgpack/msgpack makes one entry of the keys 2^53 and 2^53 + 1, with the second one's value, and says nothing: it
#        rounds both to the same number. Its option for such numbers, useBigInt64, refuses every one of them as a key.
#        msgpackr keeps both, as exact decimal texts.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
npm install --silent --no-audit --no-fund --prefix "$dir" @msgpack/msgpack@3.1.3 msgpackr@2.1.4
cat > "$dir/run.js" <<'NODE'
const { decode } = require("@msgpack/msgpack");
const { unpack } = require("msgpackr");
const key = (number) => {
  const bytes = Buffer.alloc(9);
  bytes[0] = 0xcf;
  bytes.writeBigUInt64BE(number, 1);
  return bytes;
};
const map = Buffer.concat([Buffer.from([0x82]), key(2n ** 53n), Buffer.from([1]), key(2n ** 53n + 1n), Buffer.from([2])]);
const shown = (read) => {
  try { return JSON.stringify(read()); } catch (error) { return error.message; }
};
const version = (name) => require(`${__dirname}/node_modules/${name}/package.json`).version;
console.log("@msgpack/msgpack", version("@msgpack/msgpack"), shown(() => decode(map)));
console.log("with useBigInt64", shown(() => decode(map, { useBigInt64: true })));
console.log("msgpackr", version("msgpackr"), shown(() => unpack(map)));
NODE
node "$dir/run.js" | tee "$dir/seen"
cat > "$dir/expected" <<'EXPECTED'
@msgpack/msgpack 3.1.3 {"9007199254740992":2}
with useBigInt64 The type of key must be string or number but bigint
msgpackr 2.1.4 {"9007199254740992":1,"9007199254740993":2}
EXPECTED
diff "$dir/expected" "$dir/seen" && echo "as described"
