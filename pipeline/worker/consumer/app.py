"""Faust as the agents use it: for the group, rebalancing and the loop, and for nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import faust
from faust.auth import Credentials, OAuthCredentials, SASLCredentials, SSLCredentials
from faust.sensors.monitor import Monitor
from faust.types import TP
from yarl import URL

from connectors.kafka.security import client_options
from pipeline.worker.consumer.transport import FAUST_LOG, NoTables
from schemas.settings import Kafka, Settings

REBALANCE_SECONDS = 30.0
"""All members must have rejoined by then; covers a final checkpoint and loading."""
SESSION_SECONDS = 6.0
"""A killed worker's partitions are free after this; brokers allow no less by default."""
HEARTBEAT_SECONDS = SESSION_SECONDS / 4
"""Between two heartbeats; with one, a member learns that partitions are assigned anew."""
METADATA_SECONDS = 5.0
"""A group that assigned its partitions before it could see the topic does so again after this."""
_BUFFERED_CHUNKS = 4
"""Of all partitions together; each has up to `CHUNK_RECORDS` records (`consumer/fetched.py`), or the role's
`chunk_bytes`."""


class NullMonitor(Monitor):
    """Records nothing: Faust's statistics cost a fifth of its time per record, and nobody reads them."""

    logger = FAUST_LOG

    def on_message_in(self, tp: TP, offset: int, message: Any) -> None: ...
    def on_stream_event_in(self, tp: TP, offset: int, stream: Any, event: Any) -> dict[Any, Any] | None:
        return None

    def on_stream_event_out(
        self, tp: TP, offset: int, stream: Any, event: Any, state: dict[Any, Any] | None = None
    ) -> None: ...
    def on_message_out(self, tp: TP, offset: int, message: Any) -> None: ...
    def track_tp_end_offset(self, tp: TP, offset: int) -> None: ...


def state_directory(settings: Settings) -> Path:
    """Return where this worker keeps what outlives its process; workers of one machine may share it."""
    default = Path(tempfile.gettempdir()) / f"kvlens-{settings.kafka.group}"
    return Path(settings.worker.state_directory or default)


def faust_app(settings: Settings, group: str) -> Any:
    """Return an app with every Faust setting that differs from its defaults, and why."""
    return faust.App(
        group,
        broker=[URL(f"kafka://{one.strip()}") for one in settings.kafka.bootstrap_servers.split(",")],
        broker_credentials=faust_credentials(settings.kafka),
        datadir=str(state_directory(settings)),
        store="memory://",
        table_standby_replicas=0,
        web_enabled=False,
        # Topics are created by `kvlens topics apply`.
        topic_allow_declare=False,
        topic_disable_leader=True,
        # Nothing is acknowledged, so there is nothing to wait for.
        stream_wait_empty=False,
        stream_buffer_maxsize=_BUFFERED_CHUNKS,
        stream_recovery_delay=0,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=1 << 20,
        broker_session_timeout=SESSION_SECONDS,
        broker_heartbeat_interval=HEARTBEAT_SECONDS,
        broker_rebalance_timeout=REBALANCE_SECONDS,
        # A consumer that reached the broker, but got no metadata of the topic, still joins once a coordinator
        # answers. As the leader it then assigns no partitions until it asks again, and it rejoins when the
        # answer differs. By default it asks every five minutes.
        consumer_metadata_max_age_ms=int(METADATA_SECONDS * 1000),
        # Waiting for ClickHouse is no reason to leave the group; the watchdog sees a real stall.
        broker_max_poll_interval=86400.0,
        # Faust itself never commits.
        broker_commit_livelock_soft_timeout=1e9,
        producer_request_timeout=60.0,
        processing_guarantee="at_least_once",
        cython_optimizations=True,
        Monitor=NullMonitor,
        TableManager=NoTables,
    )


def faust_credentials(kafka: Kafka) -> Credentials | None:
    """Return `client_options` in the form of `broker_credentials`; None for plain text without login.

    Raises CertificateUnreadable.
    """
    options = client_options(kafka)
    context = options.get("ssl_context")
    if "sasl_oauth_token_provider" in options:
        return OAuthCredentials(oauth_cb=options["sasl_oauth_token_provider"], ssl_context=context)
    if "sasl_mechanism" in options:
        return SASLCredentials(
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            mechanism=options["sasl_mechanism"],
            ssl_context=context,
        )
    return SSLCredentials(context) if context is not None else None
