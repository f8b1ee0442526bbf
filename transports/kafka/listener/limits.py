"""Limits of the listener: what a peer may take of the process, before and after it is identified as a broker.

A peer is a *client* until its connection is identified as a broker's (`identity`). Clients share one pool of memory,
brokers another, so that no number of clients can keep a broker's request from being read. Sizes of requests bound the
bytes; numbers of elements bound what is made of them, because one byte on the wire can become a dict of 300 bytes.
"""

from typing import Final, NamedTuple

from .api import Api
from .api_keys import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, API_VERSIONS, CONTROLLED_SHUTDOWN, UPDATE_FEATURES

KIB: Final = 1024
MIB: Final = 1024 * 1024

# Memory that one element (a struct, a string, a tagged field) takes once decoded, short arrays of integers included.
# Measured in CPython 3.11: 240 to 530 bytes for the structs of the requests that are answered here.
ELEMENT_COST: Final = 512
# One element for each 64 bytes of the largest allowed request. A partition with three replicas takes 18 to 54 bytes
# and one to four elements: 16,384 reassigned partitions fit into 1 MiB, and 65,536 proposed ISRs into 16 MiB.
ELEMENT_BYTES: Final = 64
# What a request of n bytes reserves, in n: its bytes, and ELEMENT_COST / ELEMENT_BYTES times as much once decoded.
EXPANSION: Final = 1 + ELEMENT_COST // ELEMENT_BYTES
# Three of the largest requests of clients are held at a time (27 MiB), and no address holds more than one of these.
CLIENT_POOL_REQUESTS: Final = 3
# Two of the largest requests of brokers (288 MiB), and no broker holds more than one of these.
BROKER_POOL_REQUESTS: Final = 2
# A request up to this size, and as much decoded memory again, comes out of no pool: a broker's AllocateProducerIds
# never waits for memory. 1,000 connections hold at most 24 MB of it.
FREE_SIZE: Final = 8 * KIB
FREE_COST: Final = 16 * KIB

# ApiVersions, ControlledShutdown, AllocateProducerIds and UpdateFeatures are a few numbers and a client id, which may
# have 32 KiB.
SMALL_SIZE_MAX: Final = 64 * KIB
_SMALL: Final = frozenset({API_VERSIONS, CONTROLLED_SHUTDOWN, ALLOCATE_PRODUCER_IDS, UPDATE_FEATURES})


class Limits(NamedTuple):
    """Limits of one listener, for all of its addresses.

    Attributes:
        frame_size_max: of a relayed frame, in bytes; Kafka's socket.request.max.bytes. It is streamed, never held.
        request_size_max: of a request that is answered here, in bytes. CreateTopics for 1,000 topics with their
            overrides and reassignments of 16,384 partitions fit.
        broker_request_size_max: of an AlterPartition of an identified broker, in bytes. After the loss of a broker its
            peers shrink all of their ISRs in one request: 65,536 partitions fit.
        connections_max: of all addresses together, brokers included.
        connections_per_address_max: of one address that is no broker's, and of unidentified connections of a broker's
            address. Of IPv6 addresses one /64 network counts as one address.
        first_timeout_s: from the connection to the first byte. Kafka's clients send ApiVersions at once.
        frame_timeout_s: how far a frame may be behind `frame_rate_min` bytes a second, from its first byte on.
        reserve_timeout_s: how long a request waits for memory of its pool; it is not read meanwhile.
        idle_timeout_s: between two frames; Kafka's connections.max.idle.ms.
        write_timeout_s: how long a peer may leave an answer untouched.
    """

    frame_size_max: int = 100 * MIB
    request_size_max: int = 1 * MIB
    broker_request_size_max: int = 16 * MIB
    connections_max: int = 1000
    connections_per_address_max: int = 100
    first_timeout_s: float = 10.0
    frame_timeout_s: float = 5.0
    frame_rate_min: int = 256 * KIB
    reserve_timeout_s: float = 5.0
    idle_timeout_s: float = 600.0
    write_timeout_s: float = 60.0

    def size_max(self, api: Api, *, is_broker: bool) -> int:
        """The size of the largest request of a kind, behind the first 12 bytes of its frame."""
        if api.key in _SMALL:
            return min(SMALL_SIZE_MAX, self.request_size_max)
        if api.key == ALTER_PARTITION and is_broker:
            return max(self.broker_request_size_max, self.request_size_max)
        return self.request_size_max

    def elements_max(self, api: Api, *, is_broker: bool) -> int:
        """How many elements a request may have."""
        return self.size_max(api, is_broker=is_broker) // ELEMENT_BYTES

    def key_of(self, api: Api) -> str:
        """The setting that raises the limits of a request."""
        return "kafka.broker-request-max-bytes" if api.key == ALTER_PARTITION else "kafka.request-max-bytes"
