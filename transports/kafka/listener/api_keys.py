"""Api keys of the protocol: those that are rejected, and those that are relayed to a broker if one is registered.

Source: the protocol's message definitions, as of Kafka 3.9.
"""

from typing import Final

PRODUCE: Final = 0
METADATA: Final = 3
LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6
CONTROLLED_SHUTDOWN: Final = 7
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
ELECT_LEADERS: Final = 43
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
ALTER_PARTITION: Final = 56
UPDATE_FEATURES: Final = 57
ALLOCATE_PRODUCER_IDS: Final = 67

# Requests that a controller, a Raft voter or a broker sends to brokers; and Produce, which goes to leaders and may have
# no response. A peer that sends these mistakes kactl for a broker.
REJECTED: Final = frozenset(
    {
        PRODUCE,
        LEADER_AND_ISR,
        STOP_REPLICA,
        UPDATE_METADATA,
        27,  # WriteTxnMarkers
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
# No request has a higher key; a frame with one is not a Kafka request.
API_KEY_MAX: Final = 100

# Relayed to a broker if one is registered; otherwise handled by `discovery_handlers`.
RELAY_FIRST: Final = frozenset({METADATA, API_VERSIONS})
