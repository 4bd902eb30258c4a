"""Interprets the answers of an OTLP receiver (OTLP 1.x, "OTLP/HTTP Response"). No IO."""

from __future__ import annotations

from typing import NamedTuple

import requests
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from connectors.process.addresses import printable
from schemas.reasons import OtlpOutcome

_AGAIN = frozenset({429, 502, 503, 504})
"""Statuses after which the same data may be sent again."""
MAX_REASON = 200
"""Most characters of a receiver's message in a log line."""


class Sent(NamedTuple):
    """The outcome of sending a range."""

    outcome: OtlpOutcome
    reason: str
    settled: bool
    """Whether it must not, or need not, be sent again."""


def judged(answer: requests.Response | None, failure: Exception | None, timeout: float) -> Sent:
    """Return the outcome of the last request for a range, which had `timeout` seconds in all."""
    if answer is None:
        if isinstance(failure, requests.Timeout):
            return Sent("slow", f"no answer in {timeout:g} s", settled=False)
        return Sent("unreachable", _innermost(failure), settled=False)
    if not 200 <= answer.status_code < 300:
        reason = printable(f"HTTP {answer.status_code} {answer.reason}"[:MAX_REASON])
        return Sent("refused", reason, settled=answer.status_code not in _AGAIN)
    rejected, why = _rejected(answer)
    if rejected:
        why = printable(why[:MAX_REASON]) or "it does not say why"
        return Sent("in_part", f"{rejected} points rejected: {why}", settled=True)
    return Sent("accepted", "", settled=True)


def _rejected(answer: requests.Response) -> tuple[int, str]:
    try:
        partial = ExportMetricsServiceResponse.FromString(answer.content).partial_success
    except DecodeError:  # some receivers answer with plain text
        return 0, ""
    return partial.rejected_data_points, partial.error_message


def _innermost(failure: Exception | None) -> str:
    """Return the message of the innermost error, without those of the clients around it."""
    error: BaseException | None = failure
    while error is not None and error.__context__ is not None:
        error = error.__context__
    return printable(str(error)[:MAX_REASON]) if error is not None else "no answer"
