"""Schemas of ApiVersions and Metadata, which every client sends first, for all supported versions.

Source: the protocol's message definitions, as of Kafka 3.9.
"""

from typing import Final

from .api import Api
from .api_keys import API_VERSIONS, METADATA
from .field_types import BOOL, INT16, INT32, STRING, UUID, Array, Field
from .schema import Message

# The response header has no tagged fields in any version. The response to an unknown version has version 0.
API_VERSIONS_API: Final = Api(
    API_VERSIONS,
    "ApiVersions",
    4,
    Message(
        Field("client_software_name", STRING, since=3),
        Field("client_software_version", STRING, since=3),
        flexible=3,
    ),
    Message(
        Field("error_code", INT16),
        Field("api_keys", Array((Field("api_key", INT16), Field("min_version", INT16), Field("max_version", INT16)))),
        Field("throttle_time_ms", INT32, since=1),
        flexible=3,
    ),
)

METADATA_API: Final = Api(
    METADATA,
    "Metadata",
    12,
    Message(
        Field(
            "topics",
            Array((Field("topic_id", UUID, since=10), Field("name", STRING, nullable=10))),
            nullable=1,
        ),
        Field("allow_auto_topic_creation", BOOL, since=4, default=True),
        Field("include_cluster_authorized_operations", BOOL, since=8, until=10),
        Field("include_topic_authorized_operations", BOOL, since=8),
        flexible=9,
    ),
    Message(
        Field("throttle_time_ms", INT32, since=3),
        Field(
            "brokers",
            Array(
                (
                    Field("node_id", INT32),
                    Field("host", STRING),
                    Field("port", INT32),
                    Field("rack", STRING, since=1, nullable=1),
                )
            ),
        ),
        Field("cluster_id", STRING, since=2, nullable=2),
        Field("controller_id", INT32, since=1, default=-1),
        Field(
            "topics",
            Array(
                (
                    Field("error_code", INT16),
                    Field("name", STRING, nullable=12),
                    Field("topic_id", UUID, since=10),
                    Field("is_internal", BOOL, since=1),
                    Field(
                        "partitions",
                        Array(
                            (
                                Field("error_code", INT16),
                                Field("partition_index", INT32),
                                Field("leader_id", INT32),
                                Field("leader_epoch", INT32, since=7, default=-1),
                                Field("replica_nodes", Array(INT32)),
                                Field("isr_nodes", Array(INT32)),
                                Field("offline_replicas", Array(INT32), since=5),
                            )
                        ),
                    ),
                    Field("topic_authorized_operations", INT32, since=8, default=-(2**31)),
                )
            ),
        ),
        Field("cluster_authorized_operations", INT32, since=8, until=10, default=-(2**31)),
        flexible=9,
    ),
)
