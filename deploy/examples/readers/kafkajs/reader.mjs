// Show the committed records of a topic, one JSON object a line, until nothing has come for five seconds.
//
//     npm install && node reader.mjs 127.0.0.1:9092 kvlens.figures.v1 MY_GROUP [read_uncommitted]
//
// KafkaJS reads committed records by default. zstd it reads with the codec below, which needs Node 22.15 or newer;
// figures and choices are compressed with gzip, which it brings.
import crypto from "node:crypto";
import zlib from "node:zlib";
import kafkajs from "kafkajs";

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs;
const [servers, topic, groupId, isolation = "read_committed"] = process.argv.slice(2);

CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  decompress: async (buffer) => {
    if (zlib.zstdDecompressSync) return zlib.zstdDecompressSync(buffer);
    console.error(`the topic is compressed with zstd, which Node ${process.version} lacks: use Node 22.15 or newer`);
    process.exit(69);
  },
});

const kafka = new Kafka({ brokers: servers.split(","), logLevel: logLevel.ERROR });
const consumer = kafka.consumer({ groupId, readUncommitted: isolation === "read_uncommitted" });
let until = Date.now() + 60_000;
await consumer.connect();
// KafkaJS tells of what it cannot read by this event only, and stops.
consumer.on(consumer.events.CRASH, ({ payload }) => {
  console.error(payload.error.message);
  process.exit(1);
});
await consumer.subscribe({ topic, fromBeginning: true });
await consumer.run({
  eachMessage: async ({ partition, message: { offset, timestamp, key, value } }) => {
    const sha256 = value == null ? null : crypto.createHash("sha256").update(value).digest("hex");
    const shown = { partition, offset: +offset, time: +timestamp, key: key == null ? null : key.toString() };
    console.log(JSON.stringify({ ...shown, bytes: value == null ? null : value.length, sha256 }));
    until = Date.now() + 5_000;
  },
});
while (Date.now() < until) await new Promise((done) => setTimeout(done, 200));
await consumer.disconnect(); // commits
