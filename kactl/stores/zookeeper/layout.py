"""Paths of Kafka's nodes in ZooKeeper, relative to the chroot. Their formats are in `kactl.stores.formats`.

Source: Kafka's ZkData, 3.9.
"""

import re
from typing import Final

from kactl.stores.formats.json_text import INT32_MAX

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKERS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
CONFIG_CHANGES: Final = "/config/changes"
TOPIC_CONFIGS: Final = "/config/topics"
DEFAULT_CONFIG: Final = "/config/brokers/<default>"
DELETIONS: Final = "/admin/delete_topics"
REASSIGNMENT_REQUEST: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION_REQUEST: Final = "/admin/preferred_replica_election"
FEATURES: Final = "/feature"
PRODUCER_IDS: Final = "/latest_producer_id_block"
ISR_NOTIFICATIONS: Final = "/isr_change_notification"
LOG_DIR_NOTIFICATIONS: Final = "/log_dir_event_notification"
CLUSTER_ID: Final = "/cluster/id"
# Not one of Kafka's nodes: held by the active kactl instance while /controller is persistent.
LOCK: Final = "/kactl/lock"
# Neither: drains and held instances, of which Kafka's brokers and tools know nothing.
MAINTENANCE: Final = "/kactl/maintenance"

ISR_NOTIFICATION_PREFIX: Final = "isr_change_"
LOG_DIR_NOTIFICATION_PREFIX: Final = "log_dir_event_"
CONFIG_CHANGE_PREFIX: Final = "config_change_"

# Parents before children; created with null data. A broker below protocol level 3.0 takes a null
# /latest_producer_id_block as "none yet" and exits when it holds the empty string.
PERSISTENT: Final = (
    "/consumers",
    "/brokers",
    BROKERS,
    TOPICS,
    "/brokers/seqid",
    "/config",
    CONFIG_CHANGES,
    "/admin",
    DELETIONS,
    ISR_NOTIFICATIONS,
    LOG_DIR_NOTIFICATIONS,
    PRODUCER_IDS,
    TOPIC_CONFIGS,
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    "/cluster",
)

_NUMBER: Final = re.compile("[0-9]{1,10}")


def broker(broker: int) -> str:
    return f"{BROKERS}/{broker}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, number: int) -> str:
    return f"{TOPICS}/{name}/partitions/{number}"


def is_partition(name: str) -> bool:
    """Returns whether a child of `partitions` is the node of a partition."""
    return _NUMBER.fullmatch(name) is not None and int(name) <= INT32_MAX


def state(name: str, number: int) -> str:
    return f"{TOPICS}/{name}/partitions/{number}/state"


def deletion(topic: str) -> str:
    return f"{DELETIONS}/{topic}"


def topic_config(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"
