// Decodes values (a topic and hexadecimal digits a line) with KafkaJS's client of registries, which checks them.
//
//     node kafkajs.mjs URL [OPTIONS of Ajv's 2020-12 as JSON]

import { readFileSync } from "node:fs";
import registry from "@kafkajs/confluent-schema-registry";
import Ajv2020 from "ajv/dist/2020.js";

const [url, options] = process.argv.slice(2);
const json = options ? { ajvInstance: new Ajv2020.default(JSON.parse(options)) } : {};
const client = new registry.SchemaRegistry({ host: url }, { JSON: json });
for (const line of readFileSync(0, "utf8").trim().split("\n")) {
  const [, digits] = line.split(" ");
  console.log(JSON.stringify(await client.decode(Buffer.from(digits, "hex"))));
}
