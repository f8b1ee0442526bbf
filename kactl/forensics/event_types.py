"""Event types. The set is closed: a line that matches no type is `UNPARSED`.

The comment of each type lists the columns that it fills in addition to the position columns (`file_id`, `offset`, `ts`,
`level`, `speaker`, `role`, `format`). `controller` and `controller_epoch` are filled if the line contains them. TP
stands for `topic` and `partition`. STATE stands for `leader`, `leader_epoch`, `isr`, `partition_epoch` and, since 3.2,
`recovery`.
"""

import enum
from typing import Final


class EventType(enum.StrEnum):
    """Type of an event; the value of the column `type`."""

    # -- state changes of partitions and replicas, logged by a controller ----------------------------------------------
    PARTITION = "partition"  # state change: TP, from_state, to_state; STATE if online, replicas if new
    PARTITION_FAILED = (
        "partition-failed"  # failed state change, election or move: TP, from_state, to_state, strategy, reason
    )
    ELECTING = "electing"  # an election begins: TP
    ELECTED = "elected"  # a leader was elected: TP, leader, strategy; `unclean` if the line says so
    REPLICA = "replica"  # state change of a replica: TP, broker, from_state, to_state
    REPLICA_FAILED = "replica-failed"  # failed state change of a replica: TP, broker, from_state, to_state, reason
    ISR_CUT = "isr-cut"  # the controller removed a broker from the ISR: TP, broker, STATE; leader -1 if none is left
    LEADERSHIP = "leadership"  # KRaft: TP or topic_id and partition, STATE and prev_*; null is unchanged; `unclean`
    PARTITION_CREATED = "partition-created"  # KRaft: TP, topic_id, STATE, replicas
    ASSIGNED = "assigned"  # the assignment changed: TP or (KRaft) topic_id and partition, replicas, adding, removing
    PARTITIONS_CHANGED = (
        "partitions-changed"  # KRaft: caused by a change of a broker: broker if named, count, reason; text
    )

    # -- requests of a controller to brokers ---------------------------------------------------------------------------
    SENT_PARTITION = "sent-partition"  # one partition of a request: TP, request, broker or brokers, STATE, replicas
    SENT = "sent"  # a request: request, broker or brokers, count, count_also, delete
    ANSWERED = "answered"  # its response: request, correlation_id, broker, error
    ANSWER_FAILED = "answer-failed"  # an error in a response, or no request sent: TP if named, request, broker, reason
    REPLICAS_OFFLINE = "replicas-offline"  # a broker's directory failed: broker, reason; text names the partitions

    # -- processing of these requests by brokers -----------------------------------------------------------------------
    RECEIVED_PARTITION = "received-partition"  # TP, request, correlation_id, STATE, replicas
    RECEIVED = "received"  # a broker starts to process a request: request, correlation_id, count
    APPLIED = "applied"  # a broker has processed a request: request, correlation_id, count, took_ms
    TRANSITION_BEGUN = "transition-begun"  # TP, correlation_id, to_state: leader or follower
    TRANSITION_DONE = "transition-done"  # end of the transition: TP, correlation_id, to_state
    LEADS = "leads"  # TP, leader_epoch, log_end, high_watermark, isr, partition_epoch, prev_leader, prev_leader_epoch
    FOLLOWS = "follows"  # as LEADS without isr; leader is the leader it follows, since 3.x
    IGNORED = "ignored"  # a request was rejected: TP, request, correlation_id, leader_epoch or controller_epoch, reason
    STOPPING = "stopping"  # a replica is stopped: TP, delete
    ROLE_FAILED = "role-failed"  # failed transition: TP, topic_id, to_state: leader or follower, leader, reason
    METADATA_PARTITION = "metadata-partition"  # TP, STATE, correlation_id
    METADATA = "metadata"  # correlation_id, count cached, count_also removed

    # -- controllership, and events that a controller handled ----------------------------------------------------------
    CONTROLLER_ELECTED = "controller-elected"  # controller; controller_epoch if the line has it
    CONTROLLER_EPOCH = "controller-epoch"  # controller_epoch was raised
    CONTROLLER_READY = "controller-ready"  # controller_epoch; the brokers are notified, event processing starts
    CONTROLLER_STARTED = "controller-started"  # the last step of a failover: the scheduler runs
    CONTROLLER_RESIGNED = "controller-resigned"
    CONTROLLER_MOVED = "controller-moved"  # the instance learned that it is no longer the controller: reason
    BROKERS_CHANGED = "brokers-changed"  # brokers_added, brokers_removed, brokers_bounced, brokers
    BROKER_FAILED = "broker-failed"  # brokers_removed
    BROKER_STARTED = "broker-started"  # brokers_added
    BROKER_STOPPING = "broker-stopping"  # a controlled shutdown: broker
    BROKER_STOPPED_COUNTING = "broker-no-longer-stopping"  # broker, or brokers if there are several
    BROKER_FENCED = "broker-fenced"  # KRaft: broker, reason
    BROKER_UNFENCED = "broker-unfenced"  # KRaft: broker
    BROKER_REGISTERED = "broker-registered"  # KRaft: broker, broker_epoch; repeated when a log is replayed, up to 3.5
    BROKER_UNREGISTERED = "broker-unregistered"  # KRaft: broker, broker_epoch; repeated when a log is replayed
    BROKER_STOPPED = "broker-stopped"  # KRaft: a controlled shutdown was granted: broker
    ELECTION_ASKED = "election-asked"  # a requested election: strategy, trigger; text names the partitions
    BALANCE_CHECKED = "balance-checked"  # KRaft and 2.3+: the preferred-leader check ran
    IMBALANCE = "imbalance"  # broker, ratio
    UNCLEAN_ENABLED = "unclean-enabled"  # topic, or null for the default
    TOPICS_CHANGED = "topics-changed"  # text
    TOPIC_CREATED = "topic-created"  # KRaft: topic, topic_id
    TOPIC_REMOVED = "topic-removed"  # KRaft: topic_id
    PARTITIONS_CREATED = "partitions-created"  # text names the partitions
    DELETION_ASKED = "deletion-asked"  # a requested deletion: topic, comma-separated if several
    DELETION_HANDLED = "deletion-handled"  # topic, comma-separated if several
    DELETION_STARTED = "deletion-started"  # topic
    DELETION_DONE = "deletion-done"  # topic
    DELETION_HALTED = "deletion-halted"  # ineligible for deletion: topic, reason
    DELETION_DEAD = "deletion-dead-replicas"  # topic; text names the replicas
    REASSIGNMENT_STARTED = "reassignment-started"  # TP, replicas: the target; adding and removing in 2.4
    REASSIGNMENT_WAITS = "reassignment-waits"  # TP, count of replicas in sync, count_also of target replicas
    REASSIGNMENT_CAUGHT_UP = "reassignment-caught-up"  # TP, replicas: the target; leader, and why it must change
    REASSIGNMENT_SENT = "reassignment-sent"  # TP, STATE if it can be parsed
    REASSIGNED = "reassigned"  # KRaft: a reassignment is complete: TP
    EPOCH_RAISED = "epoch-raised"  # TP, leader_epoch

    # -- actions that brokers took on their own ------------------------------------------------------------------------
    ISR_SHRUNK = "isr-shrunk"  # TP, isr, prev_isr, high_watermark, log_end; text has the lag of each replica
    ISR_EXPANDED = "isr-expanded"  # TP, isr, prev_isr
    ISR_UPDATED = "isr-updated"  # TP, isr, partition_epoch
    ISR_REFUSED = "isr-refused"  # rejected ISR update: TP, partition_epoch that the leader expected, or reason
    TRUNCATED = "truncated"  # TP, log_end after the truncation
    BROKER_STATE = "broker-state"  # KRaft: lifecycle state of a broker: from_state, to_state, broker_epoch

    # -- sessions, and brokers that stop responding --------------------------------------------------------------------
    CONFIGURED = "configured"  # a broker started: text has settings of its configuration dump; represents no line
    SESSION_NEGOTIATED = "session-negotiated"  # with ZooKeeper: took_ms is the session timeout
    FETCH_UNANSWERED = "fetch-unanswered"  # by broker: took_ms since it was sent, null if not in the line
    SILENT = "silent"  # the writer logged nothing for took_ms before this time; represents no line

    # -- KRaft's quorum ------------------------------------------------------------------------------------------------
    QUORUM_LEADER = "quorum-leader"  # controller_epoch, controller if the line names it
    QUORUM_STATE = "quorum-state"  # a node changed its role in the quorum: controller_epoch, from_state, to_state
    PERFORMANCE = "performance"  # KRaft: count of events in a period, took_ms of the slowest, text: its name
    SLOW_EVENT = "slow-event"  # took_ms, text: the name of the event

    # -- irrelevant or unparsed ----------------------------------------------------------------------------------------
    HARMLESS = "harmless"  # as `other`, for known irrelevant lines of controller and state-change loggers
    OTHER = "other"  # `lines` irrelevant lines of one level and hour; ts is that of the first line
    CLOCK_BACK = "clock-back"  # the writer's clock was set back by took_ms; represents no line
    BROKEN = "broken"  # the rest of a file could not be read: reason; represents no line
    UNPARSED = "unparsed"  # one relevant line that matches no format: text


class Role(enum.StrEnum):
    """Role in which a process wrote a line."""

    CONTROLLER = "controller"
    BROKER = "broker"


class Kind(enum.StrEnum):
    """Kind of a file, determined by its content."""

    STATE_CHANGE = "state-change"  # state-change.log of a controller or broker
    CONTROLLER = "controller"  # controller.log, with ZooKeeper or KRaft
    SERVER = "server"  # server.log, or all loggers in one stream, as containers print it
    DUMP = "dump"  # the metadata log, as Kafka's dump tool prints it
    KACTL = "kactl"  # kactl's own state-change log
    EMPTY = "empty"  # no content
    NOT_UNDERSTOOD = "not-understood"  # lines of Kafka in a layout that is not known
    FOREIGN = "foreign"  # none of the above
    UNREADABLE = "unreadable"  # the file could not be read


# Kinds of files of which no line becomes an event.
NO_LOG: Final = (Kind.EMPTY, Kind.NOT_UNDERSTOOD, Kind.FOREIGN, Kind.UNREADABLE)
# Rows that the reader adds; they represent no line of a log.
NO_LINE: Final = (EventType.CLOCK_BACK, EventType.CONFIGURED, EventType.SILENT, EventType.BROKEN)
# Lines about the deletion of whole topics; `topic` may list several.
DELETIONS: Final = (
    EventType.DELETION_ASKED,
    EventType.DELETION_HANDLED,
    EventType.DELETION_STARTED,
    EventType.DELETION_DONE,
    EventType.DELETION_HALTED,
    EventType.DELETION_DEAD,
    EventType.TOPIC_REMOVED,
)
