"""Operations, and the resources that they concern.

Source: Kafka's AclOperation, ResourceType.
"""

import enum
from typing import Final, NamedTuple


class Operation(enum.Enum):
    """An operation, by its name in stored ACLs."""

    ALL = "All"
    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"
    CREATE_TOKENS = "CreateTokens"
    DESCRIBE_TOKENS = "DescribeTokens"


class ResourceType(enum.Enum):
    """A type of resources, by its name in stored ACLs."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    TRANSACTIONAL_ID = "TransactionalId"
    DELEGATION_TOKEN = "DelegationToken"
    USER = "User"


class Resource(NamedTuple):
    """One resource."""

    type: ResourceType
    name: str


CLUSTER: Final = Resource(ResourceType.CLUSTER, "kafka-cluster")


def topic(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)
