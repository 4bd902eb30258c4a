"""docs/metrics.md: what the processes export to Prometheus about themselves, and the fleet's figures."""

from __future__ import annotations

from pipeline.generated.pages.markdown import code, page, table
from schemas.fleet_metrics import Fleet
from schemas.metric_kinds import ATTRIBUTES, Figure, Histogram, Metric
from schemas.metrics import Catalogue, Connector, Index, Login, Otlp, Worker, metrics_of

FLEET = """\
`kvlens serve`, at `/fleet/metrics` on `page.port`: the last five minutes of the [tables](tables.md). All are
of one range of whole minutes, which ended 30 to 90 s before the newest window. The page is made at most every
10 s, its advice once a minute: [scrape it](alerts.md#with-prometheus-and-alertmanager) every 30 s or more.

- **Age**: `time() - kvlens_fleet_range_end_timestamp_seconds`. Without rows of the last hour only
  `kvlens_fleet_folded_series` is there. What ClickHouse did not answer is missing, and
  `kvlens_fleet_family_answered` is 0; if it answers nothing, the status is 503.
- **Trust**: figures rest on all streams, partial and degraded ones (`kvlens_fleet_streams`) included.
- **Rates** are means of the range: too low in the first five minutes of a fleet. Those of the
  [advice](advice.md) are over the time in which kvlens knew of a source; findings may count the same tokens.
- **Without ClickHouse** (`clickhouse.url = ""`) each worker has the page, on `worker.metrics_port`: streams,
  fills, tokens and GPU blocks of its own partitions, to be added up, without hit ratios, costs, advice and
  replicas.

The share of prefill that is avoidable, by model:

```text
sum by (model) (
  kvlens_fleet_filled_tokens_per_second{cause=~"peer|peer_and_evicted|evicted|evicted_elsewhere|at_receivers|cleared"}
) / sum by (model) (kvlens_fleet_filled_tokens_per_second{cause!~"promoted|transferred|generated"})
```"""
FIGURES = [metric for metric in metrics_of(Fleet) if isinstance(metric, Figure)]
OTLP = """\
**Experimental.** With `otlp.endpoint`, `kvlens serve`, and each worker without ClickHouse, posts the fleet's
figures to an OpenTelemetry receiver, by OTLP over HTTP with protobuf: each range once, within 30 s after it
is there. A point's time is the end of its range. The wheel needs `pip install 'kvlens[otlp]'`; the image has
it.

- **Names** may change: OpenTelemetry has none for KV caches yet. Labels become attributes, with `kvlens.`
  before them, but {renamed}; empty ones are left out. The resource has `service.name` (`kvlens`), and of a
  worker `service.instance.id`: add workers up.
- **Login**: `OTEL_EXPORTER_OTLP_HEADERS` (`authorization=Bearer%20TOKEN`), `OTEL_EXPORTER_OTLP_CERTIFICATE`,
  `…_CLIENT_CERTIFICATE`, `…_CLIENT_KEY` and `OTEL_RESOURCE_ATTRIBUTES`, as
  [OpenTelemetry's exporters](https://opentelemetry.io/docs/specs/otel/protocol/exporter/) read them.
- **A receiver that is away** holds up nothing: a range has 10 s, nothing is kept.
- **Figures** are those above but the end of the range: `kvlens.fleet.` and the name, without `_per_second`,
  `_per_hour` or `_seconds`, which the unit says, as in `kvlens.fleet.filled_tokens`.
  Units: {units}.""".format(
    renamed=", ".join(f"{code(label)} as {code(name)}" for label, name in ATTRIBUTES.items()),
    units=", ".join(code(unit) for unit in sorted({figure.unit for figure in FIGURES}) if unit),
)

PROCESSES: dict[str, tuple[Catalogue, str]] = {
    "Connector": (Connector, "`kvlens connect`, on `connector.metrics_port`."),
    "Worker": (Worker, "`kvlens work`, on `worker.metrics_port`."),
    "Index": (Index, "`kvlens index`, on `index.port`."),
    "Login": (
        Login,
        "All of these, for files that settings of `kafka` name.",
    ),
    "Fleet": (Fleet, FLEET),
    "OpenTelemetry": (Otlp, OTLP),
}
"""Title -> metrics, and what exposes them."""

INTRODUCTION = """\
How kvlens itself is doing, and what it measures of the [fleet](#fleet). Connector and worker serve `/metrics`
when their `metrics_port` is not 0, beside `/livez` (the process turns) and `/readyz` (it does its job).
Labels, in braces, are bounded by the configuration; [reasons](topics.md#reasons) are listed. Names of
counters end in `_total`; {histograms} are histograms, all others gauges."""


def metrics_page() -> bytes:
    """Return the page."""
    found = [metric for process, _ in PROCESSES.values() for metric in metrics_of(process)]
    histograms = [code(metric.name) for metric in found if isinstance(metric, Histogram)]
    blocks = [INTRODUCTION.format(histograms=" and ".join([", ".join(histograms[:-1]), histograms[-1]]))]
    for title, (process, where) in PROCESSES.items():
        rows = ((code(_with_labels(metric)), metric.meaning) for metric in metrics_of(process))
        blocks += [f"## {title}", where, table(("Metric", "Meaning"), rows)]
    return page("Metrics", "`schemas/metrics.py` and `schemas/fleet_metrics.py`", *blocks)


def _with_labels(metric: Metric) -> str:
    return f"{metric.name}{{{', '.join(metric.labels)}}}" if metric.labels else metric.name
