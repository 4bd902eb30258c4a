"""Reads the residency topic, for the fleet agent."""

from __future__ import annotations

from typing import ClassVar

from connectors.kafka.topics import topic_name
from pipeline.applying.offered import Offered
from pipeline.applying.reader import Reader
from pipeline.kafka.acceptance import residency_sources
from pipeline.kafka.decoding import decode_residency
from pipeline.kafka.refusal import SourceName
from schemas.residency import ResidencyRecord
from schemas.settings import Kafka


class ResidencyReader(Reader[ResidencyRecord]):
    """Decodes records one by one."""

    # The markers of the replica agent's transactions occupy offsets.
    contiguous: ClassVar[bool] = False

    def __init__(self, kafka: Kafka) -> None:
        self.topic = topic_name(kafka, "residency")

    def decode(self, offered: Offered) -> ResidencyRecord:
        return decode_residency(offered.value, offered.headers, offered.key)

    def sources_of(self, record: ResidencyRecord) -> tuple[SourceName, ...]:
        return residency_sources(record)
