"""Schemas of the admin requests about partitions, features and users, for all supported versions.

Source: the protocol's message definitions, as of Kafka 3.9.
"""

from typing import Final

from .api import ERROR, THROTTLE, Api
from .api_keys import (
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    UPDATE_FEATURES,
)
from .field_types import BOOL, BYTES, INT8, INT16, INT32, STRING, Array, Field
from .schema import Message

ELECT_LEADERS_API: Final = Api(
    ELECT_LEADERS,
    "ElectLeaders",
    2,
    Message(
        Field("election_type", INT8, since=1),
        Field("topic_partitions", Array((Field("topic", STRING), Field("partitions", Array(INT32)))), nullable=0),
        Field("timeout_ms", INT32),
        flexible=2,
    ),
    Message(
        THROTTLE,
        Field("error_code", INT16, since=1),
        Field(
            "replica_election_results",
            Array((Field("topic", STRING), Field("partition_result", Array((Field("partition_id", INT32), *ERROR))))),
        ),
        flexible=2,
    ),
)

ALTER_PARTITION_REASSIGNMENTS_API: Final = Api(
    ALTER_PARTITION_REASSIGNMENTS,
    "AlterPartitionReassignments",
    0,
    Message(
        Field("timeout_ms", INT32),
        Field(
            "topics",
            Array(
                (
                    Field("name", STRING),
                    Field(
                        "partitions",
                        Array((Field("partition_index", INT32), Field("replicas", Array(INT32), nullable=0))),
                    ),
                )
            ),
        ),
        flexible=0,
    ),
    Message(
        THROTTLE,
        *ERROR,
        Field(
            "responses",
            Array((Field("name", STRING), Field("partitions", Array((Field("partition_index", INT32), *ERROR))))),
        ),
        flexible=0,
    ),
)

LIST_PARTITION_REASSIGNMENTS_API: Final = Api(
    LIST_PARTITION_REASSIGNMENTS,
    "ListPartitionReassignments",
    0,
    Message(
        Field("timeout_ms", INT32),
        Field("topics", Array((Field("name", STRING), Field("partition_indexes", Array(INT32)))), nullable=0),
        flexible=0,
    ),
    Message(
        THROTTLE,
        *ERROR,
        Field(
            "topics",
            Array(
                (
                    Field("name", STRING),
                    Field(
                        "partitions",
                        Array(
                            (
                                Field("partition_index", INT32),
                                Field("replicas", Array(INT32)),
                                Field("adding_replicas", Array(INT32)),
                                Field("removing_replicas", Array(INT32)),
                            )
                        ),
                    ),
                )
            ),
        ),
        flexible=0,
    ),
)

UPDATE_FEATURES_API: Final = Api(
    UPDATE_FEATURES,
    "UpdateFeatures",
    1,
    Message(
        Field("timeout_ms", INT32),
        Field(
            "feature_updates",
            Array(
                (
                    Field("feature", STRING),
                    Field("max_version_level", INT16),
                    Field("allow_downgrade", BOOL, until=0),
                    Field("upgrade_type", INT8, since=1, default=1),
                )
            ),
        ),
        Field("validate_only", BOOL, since=1),
        flexible=0,
    ),
    Message(THROTTLE, *ERROR, Field("results", Array((Field("feature", STRING), *ERROR))), flexible=0),
)

ALTER_USER_SCRAM_CREDENTIALS_API: Final = Api(
    ALTER_USER_SCRAM_CREDENTIALS,
    "AlterUserScramCredentials",
    0,
    Message(
        Field("deletions", Array((Field("name", STRING), Field("mechanism", INT8)))),
        Field(
            "upsertions",
            Array(
                (
                    Field("name", STRING),
                    Field("mechanism", INT8),
                    Field("iterations", INT32),
                    Field("salt", BYTES),
                    Field("salted_password", BYTES),
                )
            ),
        ),
        flexible=0,
    ),
    Message(THROTTLE, Field("results", Array((Field("user", STRING), *ERROR))), flexible=0),
)

DESCRIBE_USER_SCRAM_CREDENTIALS_API: Final = Api(
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    "DescribeUserScramCredentials",
    0,
    Message(Field("users", Array((Field("name", STRING),)), nullable=0), flexible=0),
    Message(
        THROTTLE,
        *ERROR,
        Field(
            "results",
            Array(
                (
                    Field("user", STRING),
                    *ERROR,
                    Field("credential_infos", Array((Field("mechanism", INT8), Field("iterations", INT32)))),
                )
            ),
        ),
        flexible=0,
    ),
)
