"""Requests by number: which are refused, and which are a broker's to answer as long as one lives.

Source: the protocol's message definitions, as of Kafka 3.9.
"""

from typing import Final

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

# Answered by a broker wherever one lives; see `own_answers`.
RELAYED_FIRST: Final = frozenset({METADATA, API_VERSIONS})
