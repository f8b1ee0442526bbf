"""Schemas of the requests that brokers send, for all supported versions.

Source: the protocol's message definitions, as of Kafka 3.9.
"""

from typing import Final

from .api import THROTTLE, Api
from .api_keys import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, CONTROLLED_SHUTDOWN
from .field_types import INT8, INT16, INT32, INT64, STRING, UUID, Array, Field
from .schema import Message

CONTROLLED_SHUTDOWN_API: Final = Api(
    CONTROLLED_SHUTDOWN,
    "ControlledShutdown",
    3,
    Message(Field("broker_id", INT32), Field("broker_epoch", INT64, since=2, default=-1), flexible=3),
    Message(
        Field("error_code", INT16),
        Field("remaining_partitions", Array((Field("topic_name", STRING), Field("partition_index", INT32)))),
        flexible=3,
    ),
)

ALTER_PARTITION_API: Final = Api(
    ALTER_PARTITION,
    "AlterPartition",
    3,
    Message(
        Field("broker_id", INT32),
        Field("broker_epoch", INT64),
        Field(
            "topics",
            Array(
                (
                    Field("topic_name", STRING, until=1),
                    Field("topic_id", UUID, since=2),
                    Field(
                        "partitions",
                        Array(
                            (
                                Field("partition_index", INT32),
                                Field("leader_epoch", INT32),
                                Field("new_isr", Array(INT32), until=2),
                                Field(
                                    "new_isr_with_epochs",
                                    Array((Field("broker_id", INT32), Field("broker_epoch", INT64))),
                                    since=3,
                                ),
                                Field("leader_recovery_state", INT8, since=1),
                                Field("partition_epoch", INT32),
                            )
                        ),
                    ),
                )
            ),
        ),
        flexible=0,
    ),
    Message(
        THROTTLE,
        Field("error_code", INT16),
        Field(
            "topics",
            Array(
                (
                    Field("topic_name", STRING, until=1),
                    Field("topic_id", UUID, since=2),
                    Field(
                        "partitions",
                        Array(
                            (
                                Field("partition_index", INT32),
                                Field("error_code", INT16),
                                Field("leader_id", INT32),
                                Field("leader_epoch", INT32),
                                Field("isr", Array(INT32)),
                                Field("leader_recovery_state", INT8, since=1),
                                Field("partition_epoch", INT32),
                            )
                        ),
                    ),
                )
            ),
        ),
        flexible=0,
    ),
)

ALLOCATE_PRODUCER_IDS_API: Final = Api(
    ALLOCATE_PRODUCER_IDS,
    "AllocateProducerIds",
    0,
    Message(Field("broker_id", INT32), Field("broker_epoch", INT64), flexible=0),
    Message(
        THROTTLE,
        Field("error_code", INT16),
        Field("producer_id_start", INT64),
        Field("producer_id_len", INT32),
        flexible=0,
    ),
)
