"""What a store tells: that something changed, and what brokers have laid down for the controller."""

import enum

import msgspec

from kactl.model import NO_BROKER, TopicPartition


class Changed(enum.Enum):
    """What a store saw change."""

    CONTROLLER = "controller"  # the controllership was taken, or changed hands
    CONTROLLER_GONE = "controller gone"  # nobody holds it now
    BROKERS = "brokers"  # a broker registered or its registration ended
    BROKER = "broker"  # the data of one registration; `name` is the id
    TOPICS = "topics"  # a topic came or vanished
    TOPIC = "topic"  # the assignment of one topic; `name` is the topic
    TOPIC_CONFIG = "topic config"  # the configuration of one topic; `name` is the topic
    DEFAULT_CONFIG = "default config"  # the configuration of all brokers
    DELETIONS = "deletions"  # a topic was marked for deletion
    LEADERSHIP = "leadership"  # of one partition that is watched; `name` is the partition, as topic-0
    ISR_NOTIFICATIONS = "isr notifications"
    LOG_DIR_NOTIFICATIONS = "log dir notifications"
    REASSIGNMENT_REQUEST = "reassignment request"  # a new one waits
    PREFERRED_ELECTION_REQUEST = "preferred election request"  # a new one waits
    SESSION_DOUBTFUL = "session doubtful"  # nothing was heard for so long that it may have ended
    SESSION_SURE = "session sure"  # after a doubt: it stands
    SESSION_LOST = "session lost"  # our session has ended; nothing of ours holds any more
    SESSION_OPENED = "session opened"  # after a loss: a new session stands


class StoreEvent(msgspec.Struct, frozen=True):
    """Something changed; read it again. `name` says which topic or broker where there are many."""

    what: Changed
    name: str = ""


class Notification(msgspec.Struct, frozen=True):
    """One notification that stands in the store until the controller takes it away.

    Attributes:
        key: the store's name for it; give it back to `delete_notifications`.
        partitions: for an ISR notification, whose leadership a leader has written.
        broker: for a log directory notification, whose directory failed; else NO_BROKER.
    """

    key: str
    partitions: tuple[TopicPartition, ...] = ()
    broker: int = NO_BROKER
