#!/bin/sh
# confluent-kafka 2.16.1 (PyPI) and @confluentinc/schemaregistry 1.10.1 (npm): what their JSON deserializers ask a registry for.
#
# Guess: the schema whose id stands before the value, and nothing else; where they got that, they decode.
# Seen:  first whether a subject is associated with the topic (`/associations/resources/-/TOPIC`), as the default of the
#        strategy for subjects is now `Associated`. 404 is taken for none; any other refusal, such as 403 of a gateway that lets
#        readers have schemas alone, ends with an error, and the schema is never asked for. With the strategy `Topic` it is.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --no-compile --no-warn-conflicts --root-user-action ignore --target "$dir/lib" \
    'confluent-kafka[json,schemaregistry]==2.16.1'
npm install --silent --no-audit --no-fund --prefix "$dir" @confluentinc/schemaregistry@1.10.1
cat > "$dir/decode.mjs" <<'NODE'
import registry from "@confluentinc/schemaregistry";
const [url, strategy] = process.argv.slice(2);
const client = new registry.SchemaRegistryClient({ baseURLs: [url] });
const type = registry.SubjectNameStrategyType;
const options = strategy ? { subjectNameStrategyType: type[strategy] } : {};
const decode = new registry.JsonDeserializer(client, registry.SerdeType.VALUE, options);
try {
  console.log(JSON.stringify(await decode.deserialize("t", Buffer.from('\0\0\0\0\x01{"n":1}'))));
} catch (error) {
  console.log("refused");
}
NODE
cat > "$dir/run.py" <<'PYTHON'
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

schema = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}})
asked, refusal = [], 0


class Registry(BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path.split("/")[1])
        found = {"schemaType": "JSON", "schema": schema}
        status, body = (200, found) if asked[-1] == "schemas" else (refusal, {"error_code": refusal, "message": "no"})
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_):
        pass


def python(strategy):
    options = {"subject.name.strategy.type": strategy} if strategy else {}
    client = SchemaRegistryClient({"url": url})
    try:
        decode = JSONDeserializer(None, conf=options, schema_registry_client=client)
        return json.dumps(decode(b'\0\0\0\0\x01{"n":1}', SerializationContext("t", MessageField.VALUE)), separators=",:")
    except SchemaRegistryError:
        return "refused"


def node(strategy):
    return subprocess.run(["node", sys.argv[1], url, strategy], capture_output=True, text=True, check=True).stdout.strip()


server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
for name, decoded in {"Python": python, "Node": node}.items():
    for refusal, strategy in ((404, ""), (403, ""), (403, "TOPIC")):
        asked.clear()
        print(name, refusal, strategy or "default", decoded(strategy), *dict.fromkeys(asked), sep="|")
PYTHON
PYTHONPATH="$dir/lib" python3 "$dir/run.py" "$dir/decode.mjs" | tee "$dir/seen"
cat > "$dir/expected" <<'EXPECTED'
Python|404|default|{"n":1}|associations|schemas
Python|403|default|refused|associations
Python|403|TOPIC|{"n":1}|schemas
Node|404|default|{"n":1}|associations|schemas
Node|403|default|refused|associations
Node|403|TOPIC|{"n":1}|schemas
EXPECTED
diff "$dir/expected" "$dir/seen" && echo "as described"
