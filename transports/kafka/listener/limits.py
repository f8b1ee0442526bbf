"""Resource limits of the listener for a peer, before and after it is identified as a broker.

A peer is a *client* until its connection is identified as a broker's (`identity`). Clients share one pool of memory and
brokers another, so that no number of clients can prevent a broker's request from being read. The size limits bound the
bytes of a request; the element limits bound its decoded form, because one byte on the wire can become a dict of 300
bytes.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from .api import Api
from .api_keys import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, API_VERSIONS, CONTROLLED_SHUTDOWN, UPDATE_FEATURES

KIB: Final = 1024
MIB: Final = 1024 * 1024

# Memory that one element (a struct, a string, a tagged field) takes once decoded, short arrays of integers included.
# Measured in CPython 3.11: 240 to 530 bytes for the structs of the requests that the listener handles.
ELEMENT_COST: Final = 512
# One element for each 64 bytes of the largest allowed request. A partition with three replicas takes 18 to 54 bytes
# and one to four elements: 16,384 reassigned partitions fit into 1 MiB, and 65,536 proposed ISRs into 16 MiB.
ELEMENT_BYTES: Final = 64
# A request of n bytes reserves this many times n: its bytes, and ELEMENT_COST / ELEMENT_BYTES times as much decoded.
EXPANSION: Final = 1 + ELEMENT_COST // ELEMENT_BYTES
# The pool of clients holds three of the largest requests (27 MiB), and no address holds more than one of these.
CLIENT_POOL_REQUESTS: Final = 3
# Two of the largest requests of brokers (288 MiB), and no broker holds more than one of these.
BROKER_POOL_REQUESTS: Final = 2
# A request up to this size, and as much decoded memory again, is not charged to a pool: a broker's AllocateProducerIds
# never waits for memory. 1,000 connections hold at most 24 MB of it.
FREE_SIZE: Final = 8 * KIB
FREE_COST: Final = 16 * KIB

# ApiVersions, ControlledShutdown, AllocateProducerIds and UpdateFeatures consist of a few numbers and a client id of up
# to 32 KiB.
SMALL_SIZE_MAX: Final = 64 * KIB
_SMALL: Final = frozenset({API_VERSIONS, CONTROLLED_SHUTDOWN, ALLOCATE_PRODUCER_IDS, UPDATE_FEATURES})


class Limits(NamedTuple):
    """Limits of one listener, for all of its addresses.

    Attributes:
        frame_size_max: size of a relayed frame in bytes; Kafka's socket.request.max.bytes. The frame is streamed, never
            held in memory.
        request_size_max: size of a request that the listener handles, in bytes. CreateTopics for 1,000 topics with
            their overrides and reassignments of 16,384 partitions fit.
        broker_request_size_max: size of an AlterPartition of an identified broker, in bytes. After the loss of a broker
            its peers shrink all of their ISRs in one request: 65,536 partitions fit.
        connections_max: connections of all addresses together, including brokers.
        connections_per_address_max: connections of one address that is not a broker's, and unidentified connections of
            a broker's address. One IPv6 /64 network counts as one address.
        connections_overrides: the same for single addresses, by `group_of`.
        first_timeout_s: time from the connection to the first byte. Kafka's clients send ApiVersions at once.
        frame_timeout_s: how far a frame may be behind `frame_rate_min` bytes a second, from its first byte on.
        reserve_timeout_s: how long a request waits for memory of its pool; it is not read meanwhile.
        idle_timeout_s: time between two frames; Kafka's connections.max.idle.ms.
        write_timeout_s: how long a peer may take to read a response.
    """

    frame_size_max: int = 100 * MIB
    request_size_max: int = 1 * MIB
    broker_request_size_max: int = 16 * MIB
    connections_max: int = 1000
    connections_per_address_max: int = 100
    connections_overrides: Mapping[str, int] = {}
    first_timeout_s: float = 10.0
    frame_timeout_s: float = 5.0
    frame_rate_min: int = 256 * KIB
    reserve_timeout_s: float = 5.0
    idle_timeout_s: float = 600.0
    write_timeout_s: float = 60.0

    def size_max(self, api: Api, *, is_broker: bool) -> int:
        """Returns the maximal size of a request of that type, without the first 12 bytes of its frame."""
        if api.key in _SMALL:
            return min(SMALL_SIZE_MAX, self.request_size_max)
        if api.key == ALTER_PARTITION and is_broker:
            return max(self.broker_request_size_max, self.request_size_max)
        return self.request_size_max

    def elements_max(self, api: Api, *, is_broker: bool) -> int:
        """Returns the maximal number of elements of a request of that type."""
        return self.size_max(api, is_broker=is_broker) // ELEMENT_BYTES

    def key_of(self, api: Api) -> str:
        """Returns the setting that raises the limits of a request of that type."""
        return "kafka.broker-request-max-bytes" if api.key == ALTER_PARTITION else "kafka.request-max-bytes"
