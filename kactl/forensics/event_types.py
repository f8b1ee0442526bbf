"""What an event can be. The set is closed: whatever is read is one of these, or `UNPARSED`.

Each says which columns it fills besides where it stands (`file_id`, `offset`, `ts`, `level`, `speaker`, `role`,
`format`); `controller` and `controller_epoch` are filled wherever the line names them. TP stands for `topic` and
`partition`, STATE for `leader`, `leader_epoch`, `isr`, `partition_epoch` and, from 3.2 on, `recovery`.
"""

import enum
from typing import Final


class EventType(enum.StrEnum):
    """See the module."""

    # -- lives of partitions and replicas, told by a controller --------------------------------------------------------
    PARTITION = "partition"  # it moved: TP, from_state, to_state; STATE if it went online, replicas if it became new
    PARTITION_FAILED = "partition-failed"  # it could not move: TP, from_state, to_state, strategy, reason
    ELECTING = "electing"  # an election begins: TP
    ELECTED = "elected"  # a leader was chosen: TP, leader; `unclean` where the line says so
    REPLICA = "replica"  # a replica moved: TP, broker, from_state, to_state
    REPLICA_FAILED = "replica-failed"  # it could not: TP, broker, from_state, to_state, reason
    ISR_CUT = "isr-cut"  # the controller took a broker out of the ISR: TP, broker, STATE; leader -1 if nobody is left
    LEADERSHIP = "leadership"  # KRaft: TP or topic_id and partition, STATE and prev_*; null is "as it was", `unclean`
    PARTITION_CREATED = "partition-created"  # KRaft: TP, topic_id, STATE, replicas
    ASSIGNED = "assigned"  # KRaft: the assignment changed: TP or topic_id and partition, replicas, adding, removing
    PARTITIONS_CHANGED = (
        "partitions-changed"  # KRaft: because of what befell a broker: broker if named, count, reason; text
    )

    # -- requests of a controller to brokers ---------------------------------------------------------------------------
    SENT_PARTITION = "sent-partition"  # one partition of a request: TP, request, broker or brokers, STATE, replicas
    SENT = "sent"  # a request: request, broker or brokers, count, count_also, delete
    ANSWERED = "answered"  # its answer: request, correlation_id, broker, error
    ANSWER_FAILED = "answer-failed"  # an error in an answer: TP if named, request, broker, reason
    REPLICAS_OFFLINE = "replicas-offline"  # a broker's directory failed: broker; text names the partitions

    # -- what brokers did with them ------------------------------------------------------------------------------------
    RECEIVED_PARTITION = "received-partition"  # TP, request, correlation_id, STATE, replicas
    RECEIVED = "received"  # a broker begins with a request: request, correlation_id, count
    APPLIED = "applied"  # and has ended: request, correlation_id, count, took_ms
    TRANSITION_BEGUN = "transition-begun"  # TP, correlation_id, to_state: leader or follower
    TRANSITION_DONE = "transition-done"  # the same, when it is done
    LEADS = "leads"  # TP, leader_epoch, log_end, high_watermark, isr, partition_epoch, prev_leader, prev_leader_epoch
    FOLLOWS = "follows"  # the same without isr; leader is whom it follows, from 3.x on
    IGNORED = "ignored"  # a request was refused: TP, request, correlation_id, leader_epoch or controller_epoch, reason
    STOPPING = "stopping"  # a replica is stopped: TP, delete
    ROLE_FAILED = (
        "role-failed"  # it could not lead or follow: TP, topic_id, to_state: leader or follower, leader, reason
    )
    METADATA_PARTITION = "metadata-partition"  # TP, STATE, correlation_id
    METADATA = "metadata"  # correlation_id, count cached, count_also removed

    # -- the controllership, and what a controller took note of --------------------------------------------------------
    CONTROLLER_ELECTED = "controller-elected"  # controller; controller_epoch if the line has it
    CONTROLLER_EPOCH = "controller-epoch"  # controller_epoch was raised
    CONTROLLER_READY = "controller-ready"  # controller_epoch; it has told the brokers, and begins with its events
    CONTROLLER_STARTED = "controller-started"  # the last step of a take-over: its scheduler runs
    CONTROLLER_RESIGNED = "controller-resigned"
    CONTROLLER_MOVED = "controller-moved"  # it found out that another one is: reason
    BROKERS_CHANGED = "brokers-changed"  # brokers_added, brokers_removed, brokers_bounced, brokers
    BROKER_FAILED = "broker-failed"  # brokers_removed
    BROKER_STARTED = "broker-started"  # brokers_added
    BROKER_STOPPING = "broker-stopping"  # a controlled shutdown: broker
    BROKER_STOPPED_COUNTING = "broker-no-longer-stopping"  # broker
    BROKER_FENCED = "broker-fenced"  # KRaft: broker, reason
    BROKER_UNFENCED = "broker-unfenced"  # KRaft: broker
    BROKER_REGISTERED = "broker-registered"  # KRaft: broker, broker_epoch
    BROKER_UNREGISTERED = "broker-unregistered"  # KRaft: broker, broker_epoch; repeated when a log is replayed
    BROKER_STOPPED = "broker-stopped"  # KRaft: a controlled shutdown was granted in the end: broker
    ELECTION_ASKED = "election-asked"  # strategy, trigger; text names the partitions
    BALANCE_CHECKED = "balance-checked"  # KRaft and 2.3+: the preferred-leader check ran
    IMBALANCE = "imbalance"  # broker, ratio
    UNCLEAN_ENABLED = "unclean-enabled"  # topic, or null for the default
    TOPICS_CHANGED = "topics-changed"  # text
    TOPIC_CREATED = "topic-created"  # KRaft: topic, topic_id
    TOPIC_REMOVED = "topic-removed"  # KRaft: topic_id
    PARTITIONS_CREATED = "partitions-created"  # text names them
    DELETION_ASKED = "deletion-asked"  # topic: comma-separated if many
    DELETION_HANDLED = "deletion-handled"  # the same
    DELETION_STARTED = "deletion-started"  # topic
    DELETION_DONE = "deletion-done"  # topic
    DELETION_HALTED = "deletion-halted"  # topic, reason
    DELETION_DEAD = "deletion-dead-replicas"  # topic; text names the replicas
    REASSIGNMENT_STARTED = "reassignment-started"  # TP, replicas: the target
    REASSIGNMENT_WAITS = "reassignment-waits"  # TP, count of replicas that caught up, count_also of the target
    REASSIGNMENT_CAUGHT_UP = "reassignment-caught-up"  # TP, replicas
    REASSIGNMENT_SENT = "reassignment-sent"  # TP, STATE if it can be read
    REASSIGNED = "reassigned"  # KRaft: a reassignment is complete: TP
    EPOCH_RAISED = "epoch-raised"  # TP, leader_epoch

    # -- what brokers did by themselves --------------------------------------------------------------------------------
    ISR_SHRUNK = "isr-shrunk"  # TP, isr, prev_isr, high_watermark, log_end; text has the lag of each
    ISR_EXPANDED = "isr-expanded"  # TP, isr, prev_isr
    ISR_UPDATED = "isr-updated"  # TP, isr, partition_epoch
    ISR_REFUSED = "isr-refused"  # TP, partition_epoch the leader believed in
    TRUNCATED = "truncated"  # TP, log_end after it
    BROKER_STATE = "broker-state"  # KRaft: a broker about its own life: from_state, to_state, broker_epoch

    # -- sessions, and brokers that stop answering ---------------------------------------------------------------------
    CONFIGURED = "configured"  # a broker started: text has settings of its configuration dump; it stands for no line
    SESSION_NEGOTIATED = "session-negotiated"  # with ZooKeeper: took_ms is the session timeout
    FETCH_UNANSWERED = "fetch-unanswered"  # by broker: took_ms since it was sent, null if the line does not say
    SILENT = "silent"  # the writer wrote nothing for took_ms before this time; it stands for no line

    # -- KRaft's quorum ------------------------------------------------------------------------------------------------
    QUORUM_LEADER = "quorum-leader"  # controller_epoch, controller where the line names it
    QUORUM_STATE = "quorum-state"  # a node changed its part in the quorum: controller_epoch, from_state, to_state
    PERFORMANCE = "performance"  # KRaft: count of events in a period, took_ms of the slowest, text: which
    SLOW_EVENT = "slow-event"  # took_ms, text: which

    # -- of no interest, or not understood -----------------------------------------------------------------------------
    HARMLESS = "harmless"  # as `other`, of loggers of controllers and state changes: lines that are known, and harmless
    OTHER = "other"  # `lines` lines of one level and hour that say nothing of the above; ts is the first one's
    CLOCK_BACK = "clock-back"  # the writer's clock was set back by took_ms; it stands for no line
    BROKEN = "broken"  # the rest of a file could not be read: reason; it stands for no line
    UNPARSED = "unparsed"  # one line that should be understood and is not: text


class Role(enum.StrEnum):
    """As what the process spoke that wrote a line."""

    CONTROLLER = "controller"
    BROKER = "broker"


class Kind(enum.StrEnum):
    """What a file is, by its content."""

    STATE_CHANGE = "state-change"  # state-change.log of a controller or broker
    CONTROLLER = "controller"  # controller.log, with ZooKeeper or KRaft
    SERVER = "server"  # server.log, or a stream of everything, as containers print it
    DUMP = "dump"  # the metadata log, as Kafka's dump tool prints it
    KACTL = "kactl"  # kactl's own state-change log
    EMPTY = "empty"  # nothing in it
    FOREIGN = "foreign"  # none of these
    UNREADABLE = "unreadable"  # it could not be read


# Rows that the reader adds, and that stand for no event of the logs.
NO_LINE: Final = (EventType.CLOCK_BACK, EventType.CONFIGURED, EventType.SILENT, EventType.BROKEN)
