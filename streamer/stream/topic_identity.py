"""Which topic a name stands for: Kafka gives every topic an id of its own, and a recreated topic gets another one.

The client library's own metadata requests stop at a version that knows no ids, so the tenth (KIP-516) is spelled
here, and sent over the consumer's connection.
"""

import uuid
from collections.abc import Collection
from io import BytesIO
from typing import Any, ClassVar

from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

_METADATA = 3
_VERSION = 10
_NO_ID = uuid.UUID(int=0)


def recreated(topic: str) -> str:
    """Say what happened to a topic and what to do about it."""
    return (
        f"the topic {topic} was deleted and recreated: it is another topic under the same name, and the stored "
        "progress is not of its offsets. Restore the topic, or give the topics a new prefix so that the new log "
        "gets its own progress"
    )


class _Uuid(AbstractType[uuid.UUID]):
    @classmethod
    def encode(cls, value: uuid.UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: BytesIO) -> uuid.UUID:
        return uuid.UUID(bytes=data.read(16))


class _MetadataResponse(Response):
    API_KEY = _METADATA
    API_VERSION = _VERSION
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString()),
                ("port", Int32),
                ("rack", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString()),
                ("topic_id", _Uuid),
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


class _MetadataRequest(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = _METADATA
    API_VERSION = _VERSION
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(("topic_id", _Uuid), ("name", CompactString()), ("tags", TaggedFields)),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class TopicIdsRequest(Request[_MetadataRequest]):
    """Asks for the ids of topics; a broker that knows none makes the client raise `NotImplementedError`."""

    API_KEY: ClassVar[int] = _METADATA

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = sorted(topics)

    def build(self, request_struct_class: type[_MetadataRequest]) -> _MetadataRequest:
        """Return the request on the wire."""
        named = [(_NO_ID, topic, dict[int, bytes]()) for topic in self._topics]
        return request_struct_class(named, False, False, False, {})


def ids_in(response: Any) -> dict[str, str]:
    """Return the ids in the answer to a `TopicIdsRequest`, by topic; those of missing topics are left out."""
    found = response.to_object()["topics"]
    return {
        one["name"]: str(one["topic_id"])
        for one in found
        if not one["error_code"] and one["topic_id"] != _NO_ID
    }
