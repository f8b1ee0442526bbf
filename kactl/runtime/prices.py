"""Table of prices: the work of each kind of request, in milliseconds of a processor, which is charged beforehand.

The prices were measured on a processor of 2024 and rounded up. They need not be exact: what a request of the admin API
uses beyond its price is settled afterwards. A kind of request without a price is not served.
"""

from typing import Final, NamedTuple


class Price(NamedTuple):
    """The price of one kind of request.

    Attributes:
        base_ms: of each request.
        kib_ms: of each KiB of its content, which is decoded and checked.
        partition_ms: of each partition that it creates, plans or moves, which need not be in its content.
    """

    base_ms: float
    kib_ms: float = 0.05
    partition_ms: float = 0.0

    def ms(self, *, size: int = 0, partitions: int = 0) -> float:
        """Returns the price of a request with so many bytes and partitions."""
        return self.base_ms + self.kib_ms * size / 1024 + self.partition_ms * partitions


FREE: Final = Price(0.0, kib_ms=0.0)
# Responses from what is in memory: states, names, numbers.
SMALL: Final = Price(0.3)
# Pages of at most a thousand entries, and summaries over the columns of all partitions.
PAGE: Final = Price(2.0)
# Selections over all partitions: plans, explanations, simulated failures.
PLAN: Final = Price(20.0)
# One event of the controller, with a result, a row of the store and a message to brokers for each partition.
CHANGE: Final = Price(1.0, kib_ms=0.2, partition_ms=0.02)

# Requests of the admin API, by method and path.
ADMIN_PRICES: Final[dict[str, Price]] = {
    "GET /livez": FREE,
    "GET /readyz": FREE,
    "GET /leader": FREE,
    "GET /v1/controller": SMALL,
    "GET /v1/controller/history": SMALL,
    "GET /v1/controller/queue": SMALL,
    "POST /v1/controller/resign": SMALL,
    "POST /v1/controller/release": SMALL,
    "GET /v1/cluster": PAGE,
    "GET /v1/brokers": PAGE,
    "GET /v1/brokers/{id}": PAGE,
    "POST /v1/brokers/{id}/kill": SMALL,
    "POST /v1/brokers/{id}/restart": SMALL,
    "POST /v1/brokers/{id}/drain": CHANGE,
    "GET /v1/brokers/{id}/stoppable": PLAN,
    "POST /v1/whatif": PLAN,
    "GET /v1/topics": PAGE,
    "POST /v1/topics": CHANGE,
    "GET /v1/topics/{topic}": PAGE,
    "PATCH /v1/topics/{topic}": CHANGE,
    "DELETE /v1/topics/{topic}": CHANGE,
    "GET /v1/topics/{topic}/explanation": PLAN,
    "GET /v1/topics/{topic}/partitions/{partition}/explanation": PLAN,
    "GET /v1/topics/{topic}/partitions/{partition}/history": PAGE,
    "GET /v1/state-machines": PAGE,
    "GET /v1/topics/{topic}/partitions/{partition}": SMALL,
    "POST /v1/topics/{topic}/partitions/{partition}/replicas/{broker}/reset": SMALL,
    "GET /v1/partitions": PAGE,
    "POST /v1/elections": CHANGE,
    "GET /v1/elections/recent": PAGE,
    "GET /v1/elections/{event}": SMALL,
    "GET /v1/reassignments": PAGE,
    "POST /v1/reassignments": CHANGE,
    "DELETE /v1/reassignments/{topic}/{partition}": CHANGE,
    "POST /v1/reassignment-plans": PLAN,
    "GET /v1/events": PAGE,
    "GET /v1/events/stream": PAGE,
    "GET /v1/audit": PAGE,
    "POST /v1/login": SMALL,
    "POST /v1/login-codes": SMALL,
    "GET /metrics": PAGE,
    "GET /openapi.json": PAGE,
}

# Requests of Kafka's protocol, by its names. Clients ask for metadata all the time, and for few topics.
LIST: Final = Price(0.3, partition_ms=0.01)
KAFKA_PRICES: Final[dict[str, Price]] = {
    "ApiVersions": FREE,
    "Metadata": LIST,
    "CreateTopics": CHANGE,
    "DeleteTopics": CHANGE,
    "CreatePartitions": CHANGE,
    "ElectLeaders": CHANGE,
    "AlterPartitionReassignments": CHANGE,
    "ListPartitionReassignments": LIST,
    "AlterUserScramCredentials": SMALL,
    "UpdateFeatures": SMALL,
    "AllocateProducerIds": SMALL,
    "ControlledShutdown": CHANGE,
    "AlterPartition": CHANGE,
    "FindCoordinator": SMALL,
    "DescribeAcls": SMALL,
    "CreateAcls": SMALL,
    "DeleteAcls": SMALL,
    "DescribeConfigs": SMALL,
    "AlterConfigs": SMALL,
    "IncrementalAlterConfigs": SMALL,
    "DescribeClientQuotas": SMALL,
    "AlterClientQuotas": SMALL,
    "DescribeUserScramCredentials": SMALL,
}

# Requests of participants and spectators, by their types. Sessions are never delayed: a lease depends on them. A Watch
# is charged besides for the bytes of its answer.
PARTICIPANT_PRICES: Final[dict[str, Price]] = {
    "Register": SMALL,
    "VerifyEndpoint": SMALL,
    "Identify": SMALL,
    "Heartbeat": FREE,
    "Goodbye": SMALL,
    "EnsureTopic": CHANGE,
    "ControlledShutdown": CHANGE,
    "AlterPartitionReceived": CHANGE,
    "AllocateProducerIds": SMALL,
    "ReportPartitions": CHANGE,
    "ReportLeaders": CHANGE,
    "ReportLeaderships": CHANGE,
    "Watch": SMALL,
    "Peer": Price(0.05, kib_ms=0.02),
}
