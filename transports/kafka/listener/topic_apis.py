"""Schemas of the admin requests about topics, for all supported versions.

Source: the protocol's message definitions, as of Kafka 3.9.
"""

from typing import Final

from .api import ERROR, THROTTLE, Api
from .api_keys import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from .field_types import BOOL, INT8, INT16, INT32, STRING, UUID, Array, Field
from .schema import Message

CREATE_TOPICS_API: Final = Api(
    CREATE_TOPICS,
    "CreateTopics",
    7,
    Message(
        Field(
            "topics",
            Array(
                (
                    Field("name", STRING),
                    Field("num_partitions", INT32),
                    Field("replication_factor", INT16),
                    Field("assignments", Array((Field("partition_index", INT32), Field("broker_ids", Array(INT32))))),
                    Field("configs", Array((Field("name", STRING), Field("value", STRING, nullable=0)))),
                )
            ),
        ),
        Field("timeout_ms", INT32),
        Field("validate_only", BOOL, since=1),
        flexible=5,
    ),
    Message(
        Field("throttle_time_ms", INT32, since=2),
        Field(
            "topics",
            Array(
                (
                    Field("name", STRING),
                    Field("topic_id", UUID, since=7),
                    Field("error_code", INT16),
                    Field("error_message", STRING, since=1, nullable=1),
                    Field("num_partitions", INT32, since=5, default=-1),
                    Field("replication_factor", INT16, since=5, default=-1),
                    Field(
                        "configs",
                        Array(
                            (
                                Field("name", STRING),
                                Field("value", STRING, nullable=0),
                                Field("read_only", BOOL),
                                Field("config_source", INT8, default=-1),
                                Field("is_sensitive", BOOL),
                            )
                        ),
                        since=5,
                        nullable=5,
                    ),
                )
            ),
        ),
        flexible=5,
    ),
)

DELETE_TOPICS_API: Final = Api(
    DELETE_TOPICS,
    "DeleteTopics",
    6,
    Message(
        Field("topics", Array((Field("name", STRING, nullable=6), Field("topic_id", UUID))), since=6),
        Field("topic_names", Array(STRING), until=5),
        Field("timeout_ms", INT32),
        flexible=4,
    ),
    Message(
        Field("throttle_time_ms", INT32, since=1),
        Field(
            "responses",
            Array(
                (
                    Field("name", STRING, nullable=6),
                    Field("topic_id", UUID, since=6),
                    Field("error_code", INT16),
                    Field("error_message", STRING, since=5, nullable=5),
                )
            ),
        ),
        flexible=4,
    ),
)

CREATE_PARTITIONS_API: Final = Api(
    CREATE_PARTITIONS,
    "CreatePartitions",
    3,
    Message(
        Field(
            "topics",
            Array(
                (
                    Field("name", STRING),
                    Field("count", INT32),
                    Field("assignments", Array((Field("broker_ids", Array(INT32)),)), nullable=0),
                )
            ),
        ),
        Field("timeout_ms", INT32),
        Field("validate_only", BOOL),
        flexible=2,
    ),
    Message(THROTTLE, Field("results", Array((Field("name", STRING), *ERROR))), flexible=2),
)
