"""Table of the request types that the listener handles. Other requests are relayed to a broker, or rejected."""

from typing import Final

from .api import Api
from .broker_apis import ALLOCATE_PRODUCER_IDS_API, ALTER_PARTITION_API, CONTROLLED_SHUTDOWN_API
from .discovery_apis import API_VERSIONS_API, METADATA_API
from .partition_apis import (
    ALTER_PARTITION_REASSIGNMENTS_API,
    ALTER_USER_SCRAM_CREDENTIALS_API,
    DESCRIBE_USER_SCRAM_CREDENTIALS_API,
    ELECT_LEADERS_API,
    LIST_PARTITION_REASSIGNMENTS_API,
    UPDATE_FEATURES_API,
)
from .topic_apis import CREATE_PARTITIONS_API, CREATE_TOPICS_API, DELETE_TOPICS_API

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
        DESCRIBE_USER_SCRAM_CREDENTIALS_API,
        ALTER_USER_SCRAM_CREDENTIALS_API,
        ALTER_PARTITION_API,
        UPDATE_FEATURES_API,
        ALLOCATE_PRODUCER_IDS_API,
    )
}
