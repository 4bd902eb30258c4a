// Count the blocks that each replica's engine stored and removed, each batch once. An example to copy and change.
//
//     npm install && node reader.mjs 127.0.0.1:9092 kvlens.events.v1
//
// It reads the topic from its beginning to the end that it has now. Node 22.15 or newer is needed, whose zlib has zstd.
import zlib from "node:zlib";
import { decode } from "@msgpack/msgpack";
import kafkajs from "kafkajs";

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs;
const [servers, topic] = process.argv.slice(2);

if (!zlib.zstdDecompressSync) {
  console.error(`the topic is compressed with zstd, which Node ${process.version} lacks: use Node 22.15 or newer`);
  process.exit(69);
}
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => zlib.zstdCompressSync(encoder.buffer),
  decompress: async (buffer) => zlib.zstdDecompressSync(buffer),
});

const reached = new Map(); // source -> [incarnation, last sequence number]
const counts = new Map(); // source -> { stored, removed }

function apply(value) {
  const record = decode(value, { useBigInt64: false }); // incarnations are below 2^53
  const source = `${record.replica}/${record.dp_rank}`;
  let [life, last] = reached.get(source) ?? [0, -1];
  if (record.incarnation < life) return;
  if (record.incarnation > life) [life, last] = [record.incarnation, -1];
  const count = counts.get(source) ?? { stored: 0, removed: 0 };
  for (const [seq, , , events] of record.batches) {
    if (seq === null || seq <= last) continue; // a notice, or a batch that was sent twice
    last = seq;
    for (const event of events) {
      if (event.type === "stored" || event.type === "removed") count[event.type] += event.hashes.length / 8;
    }
  }
  reached.set(source, [life, last]);
  counts.set(source, count);
}

const kafka = new Kafka({ brokers: servers.split(","), logLevel: logLevel.ERROR });
const admin = kafka.admin();
await admin.connect();
const ends = new Map((await admin.fetchTopicOffsets(topic)).map((one) => [one.partition, one]));
await admin.disconnect();
const open = new Set([...ends.keys()].filter((number) => +ends.get(number).high > +ends.get(number).low));

const consumer = kafka.consumer({ groupId: `reader-${process.pid}-${Date.now()}`, readUncommitted: false });
await consumer.connect();
await consumer.subscribe({ topic, fromBeginning: true });
await new Promise((done, failed) => {
  if (!open.size) return done();
  // KafkaJS tells of a codec that it lacks by this event only.
  consumer.on(consumer.events.CRASH, ({ payload }) => failed(payload.error));
  consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch }) => {
      for (const message of batch.messages) apply(message.value);
      if (+batch.lastOffset() + 1 >= +ends.get(batch.partition).high) open.delete(batch.partition);
      if (!open.size) done();
    },
  });
});
await consumer.disconnect();
for (const [source, { stored, removed }] of [...counts].sort()) {
  console.log(`${source}: ${stored} stored, ${removed} removed`);
}
