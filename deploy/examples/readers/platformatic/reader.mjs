// Show the records of a topic, one JSON object a line, until nothing has come for five seconds.
//
//     npm install && node reader.mjs 127.0.0.1:9092 kvlens.events.v1 MY_GROUP [read_uncommitted]
//
// It needs Node 22, and for zstd 22.15. Some aborted records pass although committed ones are asked for: see docs/topics.md.
import crypto from "node:crypto";
import zlib from "node:zlib";
import { Consumer, FetchIsolationLevels, MessagesStreamModes } from "@platformatic/kafka";

const [servers, topic, groupId, isolation = "read_committed"] = process.argv.slice(2);

if (!zlib.zstdDecompressSync) {
  console.error(`Node ${process.version} reads no zstd, and is too old for this client: use Node 22.15 or newer`);
  process.exit(69);
}
const consumer = new Consumer({ groupId, clientId: "reader", bootstrapBrokers: servers.split(",") });
const stream = await consumer.consume({
  topics: [topic],
  mode: MessagesStreamModes.EARLIEST,
  isolationLevel: FetchIsolationLevels[isolation.toUpperCase()],
  autocommit: false,
});
let until = Date.now() + 60_000;
const last = new Map();
stream.on("error", (error) => {
  console.error(error.message);
  process.exit(1);
});
stream.on("data", ({ partition, offset, timestamp, key, value }) => {
  const sha256 = value == null ? null : crypto.createHash("sha256").update(value).digest("hex");
  const shown = { partition, offset: Number(offset), time: Number(timestamp), key: key == null ? null : key.toString() };
  console.log(JSON.stringify({ ...shown, bytes: value == null ? null : value.length, sha256 }));
  last.set(partition, offset);
  until = Date.now() + 5_000;
});
while (Date.now() < until) await new Promise((done) => setTimeout(done, 200));
const offsets = [...last].map(([partition, offset]) => ({ topic, partition, offset: offset + 1n, leaderEpoch: -1 }));
if (offsets.length) await consumer.commit({ offsets });
await consumer.close(true);
