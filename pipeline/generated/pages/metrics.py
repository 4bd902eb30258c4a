"""docs/metrics.md: what the processes tell Prometheus about themselves, and the fleet's figures."""

from __future__ import annotations

from pipeline.generated.pages.markdown import code, page, table
from schemas.metrics import (
    ATTRIBUTES,
    Catalogue,
    Connector,
    Figure,
    Fleet,
    Index,
    Login,
    Otlp,
    Worker,
    metrics_of,
)

FLEET = """\
`kvlens serve`, at `/fleet/metrics` on `page.port`: what the [tables](tables.md) say of the last five
minutes, for those who alert and scale in Prometheus. All are gauges of one range of whole minutes, which
ended 30 to 90 s before the newest window. A page is made at most every 10 s, its advice once a minute; scrape
it every 30 s or more.

Nothing old looks new: `time() - kvlens_fleet_range_end_timestamp_seconds` is the age of all figures, and
without rows of the last hour only `kvlens_fleet_folded_series` is there. Figures that ClickHouse did not
answer are missing, and `kvlens_fleet_family_answered` is 0; if it answers nothing, the status is 503.
Figures rest on all streams, also on those that `kvlens_fleet_streams` counts as partial or degraded. Rates
are means of the whole range, so they are too low in the first five minutes of a fleet. Those of the
[advice](advice.md) are over the time in which kvlens knew of a source; findings may count the same tokens.

```yaml
scrape_configs:
  - job_name: kvlens-fleet
    metrics_path: /fleet/metrics
    scrape_interval: 30s
    static_configs:
      - targets: ["127.0.0.1:8080"]
```

A worker without ClickHouse (`clickhouse.url = ""`) has the page itself, on `worker.metrics_port`, made of the
rows that it writes as figures: streams, fills, tokens and GPU blocks of its own partitions. Add them up over
workers (`sum by (model, cause)`). Hit ratios, costs, advice and replicas need the tables and are not there.

Where the page needs a login, give Prometheus its token: `authorization: {credentials_file: FILE}`.

The share of prefill that is avoidable, by model:

```text
sum by (model) (
  kvlens_fleet_filled_tokens_per_second{cause=~"peer|peer_and_evicted|evicted|evicted_elsewhere|at_receivers|cleared"}
) / sum by (model) (kvlens_fleet_filled_tokens_per_second{cause!~"promoted|transferred|generated"})
```"""
OTLP = """\
**Experimental.** With `otlp.endpoint`, `kvlens serve` posts the fleet's figures to an OpenTelemetry receiver
as well, by OTLP over HTTP with protobuf, and so does each worker without ClickHouse: each range once, within
30 s after it is there. A point's time is the end of its range. The wheel needs `pip install 'kvlens[otlp]'`;
the image has it.

Names may change. OpenTelemetry's conventions for GenAI have none for KV caches yet
([proposals](https://github.com/open-telemetry/semantic-conventions-genai/issues/87) are not agreed on), so
metrics are called `kvlens.*`. Labels become attributes, with `kvlens.` before them, but {renamed};
one without a value is left out. The resource has `service.name` (`kvlens`), and of a worker
`service.instance.id`: add its figures up. `OTEL_RESOURCE_ATTRIBUTES` says otherwise, or more. A login goes
into `OTEL_EXPORTER_OTLP_HEADERS` (`authorization=Bearer%20TOKEN`), certificates into
`OTEL_EXPORTER_OTLP_CERTIFICATE`, `…_CLIENT_CERTIFICATE` and `…_CLIENT_KEY`, as
[OpenTelemetry's exporters](https://opentelemetry.io/docs/specs/otel/protocol/exporter/) read them.

A receiver that is away, slow or refuses holds up nothing: a range has 10 s, nothing is kept, and the next
range is the next try. Each [outcome](topics.md#otlpoutcome) is counted, on `/fleet/metrics` or the worker's
`/metrics`, and one line a minute says why. Only names and figures of the table below are sent.""".format(
    renamed=", ".join(f"{code(label)} as {code(name)}" for label, name in ATTRIBUTES.items())
)
PROCESSES: dict[str, tuple[Catalogue, str]] = {
    "Connector": (Connector, "`kvlens connect`, on `connector.metrics_port`."),
    "Worker": (Worker, "`kvlens work`, on `worker.metrics_port`."),
    "Index": (Index, "`kvlens index`, on `index.port`."),
    "Login": (
        Login,
        "All of these, for what the settings of `kafka` name: `ssl_cafile`, `sasl_password_file` and so on.",
    ),
    "Fleet": (Fleet, FLEET),
    "OpenTelemetry": (Otlp, OTLP),
}
"""Title -> metrics, and what exposes them."""

INTRODUCTION = """\
Connector and worker serve Prometheus metrics at `/metrics` when their `metrics_port` is not 0, beside
`/livez` (the process turns) and `/readyz` (it does its job). Labels are bounded by the configuration: never
a block hash, a request or a session.

These show how kvlens itself is doing. What it measures of the engines is in the [tables](tables.md), and for
Prometheus on a page of its own: [Fleet](#fleet)."""


def metrics_page() -> bytes:
    """Return the page."""
    blocks = [INTRODUCTION]
    for title, (process, where) in PROCESSES.items():
        rows = (
            (code(metric.name), metric.kind, ", ".join(map(code, metric.labels)), metric.meaning)
            for metric in metrics_of(process)
        )
        blocks += [f"## {title}", where, table(("Metric", "Type", "Labels", "Meaning"), rows)]
    blocks.append(_names())
    return page("Metrics", code("schemas/metrics.py"), *blocks)


def _names() -> str:
    figures = (metric for metric in metrics_of(Fleet) if isinstance(metric, Figure))
    rows = (
        (code(figure.name), code(figure.otlp_name), code(figure.unit) if figure.unit else "")
        for figure in figures
        if figure is not Fleet.range_end
    )
    return table(("Figure", "OpenTelemetry", "Unit"), rows)
