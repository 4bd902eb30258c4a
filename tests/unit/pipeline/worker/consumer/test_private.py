"""What the worker changes of Faust and mode, and that it is what it was."""

from __future__ import annotations

from tests.support.checkout import ROOT
from tests.support.foreign_source import digests, touched

RESTS_ON = {
    "faust.tables.manager:TableManager._update_channels": "93a11d400995",
    "faust.tables.manager:TableManager.on_start": "5e67c90893df",
    "faust.transport.conductor:Conductor._update_tp_index": "ce84a2729031",
    "faust.transport.consumer:Consumer._drain_messages": "8308d11bc7a2",
    "faust.transport.consumer:Consumer._wait_next_records": "97fc2cf4cf94",
    "faust.transport.consumer:Consumer.on_buffer_full": "01644b5587f1",
    "faust.transport.consumer:Consumer.perform_seek": "b2fa31dd2a87",
    "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread._create_worker_consumer": "684c167041ff",
    "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread._ensure_consumer": "ab708b087b34",
    "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread._fetch_records": "4ba572180fc6",
    "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread._seek_wait": "d1806d189d8f",
    "faust.transport.drivers.aiokafka:Consumer._new_consumer_thread": "e3e2675bb60b",
    "mode.services:Service.wait_first": "79f98bfdf43f",
}
"""Digests of the sources of what `transport.py` replaces or calls in Faust 0.15.3 and mode 0.7.1.

If one differs, read what changed, see that the transport still does what it says (integration tests of
pipeline/worker/consumer), and write the new digest here."""
TOUCHED = {"_ensure_consumer", "_read_offset", "_stopped", "_tp_index"}


def test_what_it_rests_on_is_what_it_was() -> None:
    assert digests(RESTS_ON) == RESTS_ON


def test_it_touches_nothing_else_that_is_private() -> None:
    assert set(touched(ROOT / "pipeline/worker/consumer/transport.py")) == TOUCHED
