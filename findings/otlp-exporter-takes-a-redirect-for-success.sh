#!/bin/sh
# opentelemetry-exporter-otlp-proto-http 1.45.2 (PyPI): what its exporter of metrics calls a success.
#
# Guess: SUCCESS when the receiver has taken the points.
# Seen:  also for a redirect, which it does not follow, and for an answer that rejects all points (`partial_success`, OTLP
#        1.x), which it does not read.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --no-compile --no-warn-conflicts --root-user-action ignore --target "$dir/lib" \
    opentelemetry-sdk==1.45.2 opentelemetry-exporter-otlp-proto-http==1.45.2
cat > "$dir/run.py" <<'PYTHON'
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.sdk.metrics.export import (
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

rejected = ExportMetricsPartialSuccess(rejected_data_points=1, error_message="no room")
ANSWERS = {
    "a redirect": (302, b""),
    "an answer that rejects the only point": (
        200,
        ExportMetricsServiceResponse(partial_success=rejected).SerializeToString(),
    ),
    "a refusal": (400, b""),
}
answer = None


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        status, body = answer
        self.send_response(status)
        self.send_header("Location", "http://127.0.0.1:1/login")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()
point = NumberDataPoint({}, 0, 1, 2.0)
scope = ScopeMetrics(InstrumentationScope("x"), [Metric("x", "", "", Gauge([point]))], "")
data = MetricsData([ResourceMetrics(Resource({}), [scope], "")])
for name, answer in ANSWERS.items():
    exporter = OTLPMetricExporter(f"http://127.0.0.1:{server.server_port}/v1/metrics")
    print(name, exporter.export(data).name, sep="|")
PYTHON
PYTHONPATH="$dir/lib" python3 "$dir/run.py" | tee "$dir/seen"
cat > "$dir/expected" <<'EXPECTED'
a redirect|SUCCESS
an answer that rejects the only point|SUCCESS
a refusal|FAILURE
EXPECTED
diff "$dir/expected" "$dir/seen" && echo "as described"
