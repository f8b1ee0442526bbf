"""The requests that are answered here: their numbers, versions and fields.

What is not in the table is relayed to a broker, or refused where it would be an order to a broker: this listener is
none, and obeys nobody.

Source: the protocol's message definitions, as of Kafka 3.9.
"""

from typing import Final, NamedTuple

from .schema import BOOL, BYTES, INT8, INT16, INT32, INT64, STRING, UUID, Array, Field, Message

PRODUCE: Final = 0
METADATA: Final = 3
LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6
CONTROLLED_SHUTDOWN: Final = 7
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
CREATE_PARTITIONS: Final = 37
ELECT_LEADERS: Final = 43
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
ALTER_PARTITION: Final = 56
UPDATE_FEATURES: Final = 57
ALLOCATE_PRODUCER_IDS: Final = 67

# What a controller, a Raft voter or another broker would say to a broker; and Produce, which may want no answer at
# all and goes to leaders. Whoever sends these takes us for something that we are not.
REFUSED: Final = frozenset(
    {
        PRODUCE,
        LEADER_AND_ISR,
        STOP_REPLICA,
        UPDATE_METADATA,
        17,  # SaslHandshake: nobody is authenticated here
        27,  # WriteTxnMarkers
        36,  # SaslAuthenticate
        52,  # Vote
        53,  # BeginQuorumEpoch
        54,  # EndQuorumEpoch
        58,  # Envelope
        59,  # FetchSnapshot
        62,  # BrokerRegistration
        63,  # BrokerHeartbeat
        64,  # UnregisterBroker
    }
)
# No request has a number above this one; what comes with another is garbage.
API_KEY_MAX: Final = 100

_ERROR: Final = (Field("error_code", INT16), Field("error_message", STRING, nullable=0))
_THROTTLE: Final = Field("throttle_time_ms", INT32)


class Api(NamedTuple):
    """One kind of request.

    Attributes:
        key: its number in the protocol.
        name: the protocol's.
        version_max: all from 0 to this are understood.
    """

    key: int
    name: str
    version_max: int
    request: Message
    response: Message


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
        _THROTTLE,
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
        _THROTTLE,
        Field("error_code", INT16),
        Field("producer_id_start", INT64),
        Field("producer_id_len", INT32),
        flexible=0,
    ),
)

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
    Message(_THROTTLE, Field("results", Array((Field("name", STRING), *_ERROR))), flexible=2),
)

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
        _THROTTLE,
        Field("error_code", INT16, since=1),
        Field(
            "replica_election_results",
            Array((Field("topic", STRING), Field("partition_result", Array((Field("partition_id", INT32), *_ERROR))))),
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
        _THROTTLE,
        *_ERROR,
        Field(
            "responses",
            Array((Field("name", STRING), Field("partitions", Array((Field("partition_index", INT32), *_ERROR))))),
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
        _THROTTLE,
        *_ERROR,
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
    Message(_THROTTLE, *_ERROR, Field("results", Array((Field("feature", STRING), *_ERROR))), flexible=0),
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
    Message(_THROTTLE, Field("results", Array((Field("user", STRING), *_ERROR))), flexible=0),
)

# Its answer has a header without tagged fields in every version, and is in version 0 where the version is unknown.
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
                    # Empty in every answer of ours; so what each partition would hold is not told here.
                    Field("partitions", Array(INT32)),
                    Field("topic_authorized_operations", INT32, since=8, default=-(2**31)),
                )
            ),
        ),
        Field("cluster_authorized_operations", INT32, since=8, until=10, default=-(2**31)),
        flexible=9,
    ),
)

APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        METADATA_API,
        CONTROLLED_SHUTDOWN_API,
        API_VERSIONS_API,
        CREATE_TOPICS_API,
        DELETE_TOPICS_API,
        CREATE_PARTITIONS_API,
        ELECT_LEADERS_API,
        ALTER_PARTITION_REASSIGNMENTS_API,
        LIST_PARTITION_REASSIGNMENTS_API,
        ALTER_USER_SCRAM_CREDENTIALS_API,
        ALTER_PARTITION_API,
        UPDATE_FEATURES_API,
        ALLOCATE_PRODUCER_IDS_API,
    )
}
# Answered by a broker wherever one lives; see `own_answers`.
RELAYED_FIRST: Final = frozenset({METADATA, API_VERSIONS})
