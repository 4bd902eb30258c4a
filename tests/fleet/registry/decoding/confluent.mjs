// Decodes values (a topic and hexadecimal digits a line) with Confluent's client for Node, which checks them.
//
//     node confluent.mjs URL [OPTIONS as JSON]

import { readFileSync } from "node:fs";
import registry from "@confluentinc/schemaregistry";

const [url, options = "{}"] = process.argv.slice(2);
const client = new registry.SchemaRegistryClient({ baseURLs: [url] });
const deserializer = new registry.JsonDeserializer(client, registry.SerdeType.VALUE, {
  validate: true,
  ...JSON.parse(options),
});
for (const line of readFileSync(0, "utf8").trim().split("\n")) {
  const [topic, digits] = line.split(" ");
  console.log(JSON.stringify(await deserializer.deserialize(topic, Buffer.from(digits, "hex"))));
}
