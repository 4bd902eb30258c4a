"""Kafka's metadata request with the user's rights and the topics' ids: aiokafka's own stops at version 5.

The shapes are those of MetadataRequest.json and MetadataResponse.json in Kafka's sources; ids are of KIP-516.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from io import BytesIO
from typing import TypeAlias

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v4, MetadataRequest_v5
from aiokafka.protocol.types import (
    AbstractType,
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    String,
    TaggedFields,
)

NOT_TOLD = -(1 << 31)
"""`authorized_operations` of a broker that does not report them."""


class _ResponseWithRights(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            Array(("node_id", Int32), ("host", String("utf-8")), ("port", Int32), ("rack", String("utf-8"))),
        ),
        ("cluster_id", String("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("topic", String("utf-8")),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline_replicas", Array(Int32)),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
        ("cluster_authorized_operations", Int32),
    )


class _WithRights(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _ResponseWithRights
    SCHEMA = Schema(
        ("topics", Array(String("utf-8"))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
    )


class _TopicId(AbstractType[str]):  # type: ignore[misc]
    """Sixteen bytes; as text what Kafka's own tools print, empty where there is none."""

    @classmethod
    def encode(cls, value: str) -> bytes:
        """Return no id: topics are asked for by name."""
        return _NO_ID

    @classmethod
    def decode(cls, data: BytesIO) -> str:
        value = data.read(len(_NO_ID))
        return "" if value == _NO_ID else urlsafe_b64encode(value).rstrip(b"=").decode()


_NO_ID = bytes(16)
_Name = CompactString("utf-8")


class _ResponseWithIds(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32), ("host", _Name), ("port", Int32), ("rack", _Name), ("tags", TaggedFields)
            ),
        ),
        ("cluster_id", _Name),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", _Name),
                ("topic_id", _TopicId),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class _WithIds(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _ResponseWithIds
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _TopicId), ("name", _Name), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


_Version: TypeAlias = MetadataRequest_v4 | MetadataRequest_v5 | _WithRights | _WithIds


class MetadataRequest(Request[_Version]):  # type: ignore[misc]
    """Asks about topics by name; brokers before 2.3 leave the rights out, those before 2.8 the ids."""

    API_KEY = 3

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_Version]) -> _Version:
        if request_struct_class.API_VERSION >= _WithIds.API_VERSION:
            by_name: list[tuple[str, str, dict[int, bytes]]] = [("", name, {}) for name in self._topics]
            return request_struct_class(by_name, False, False, True, {})
        rights = (False, True) if request_struct_class.API_VERSION >= _WithRights.API_VERSION else ()
        return request_struct_class(self._topics, False, *rights)
