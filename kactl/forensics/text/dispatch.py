"""Lookup of formats by the first word of a message, and patterns of known lines that are ignored.

Formats with the same first word are tried in turn. No message has two formats; a test matches every known line against
all formats.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from kactl.forensics.event_types import Role

from .format import ZOOKEEPER_LAST, Format
from .formats import broker, controller_log, kraft, legacy, state_change


def _until_zookeeper(formats: Iterable[Format]) -> Iterator[Format]:
    """Limits the lines of ZooKeeper controllers, and of requests that only they send, to versions before 4.0."""
    for format in formats:
        with_requests = format.role is Role.CONTROLLER or "request" in format.fills or "request" in format.constants
        yield format._replace(until=min(format.until, ZOOKEEPER_LAST)) if with_requests else format


# The most frequent first, among those with the same first word.
FORMATS: Final[tuple[Format, ...]] = (
    *_until_zookeeper((*state_change.FORMATS, *broker.FORMATS, *controller_log.FORMATS)),
    *kraft.FORMATS,
    *legacy.FORMATS,
)
BY_ID: Final = {format.id: format for format in FORMATS}

# Loggers of which all lines are expected to be known.
_OURS: Final = (
    b"state.change.logger",
    b"kafka.controller",
    b"org.apache.kafka.controller",
    b"kafka.server.BrokerLifecycleManager",
    b"org.apache.kafka.server.BrokerLifecycleManager",
)
# The same for layouts that print only the last part of a logger's name, such as `%c{1}`.
STATE_SHORT: Final = b"logger"
_WITH_ZOOKEEPER: Final = b"""
    ControllerChannelManager ControllerEventManager ControllerEventManager$ControllerEventThread ControllerEventThread
    KafkaController OfflinePartitionLeaderSelector PartitionStateMachine ReplicaStateMachine RequestSendThread
    TopicDeletionManager ZkPartitionStateMachine ZkReplicaStateMachine
"""
_WITH_KRAFT: Final = b"""
    AclControlManager ActivationRecordsGenerator BrokerHeartbeatManager BrokerLifecycleManager ClientQuotaControlManager
    ClusterControlManager ConfigurationControlManager DelegationTokenControlManager EventPerformanceMonitor
    FeatureControlManager OffsetControlManager PartitionChangeBuilder PartitionReassignmentReplicas
    PeriodicTaskControlManager ProducerIdControlManager QuorumController ReplicationControlManager ScramControlManager
    SlowEventsLogger
"""
_OURS_SHORT: Final = frozenset({STATE_SHORT, *_WITH_ZOOKEEPER.split(), *_WITH_KRAFT.split()})


def _by_head() -> dict[bytes | None, tuple[Format, ...]]:
    heads: dict[bytes | None, tuple[Format, ...]] = {}
    for format in FORMATS:
        heads[format.head] = (*heads.get(format.head, ()), format)
    return heads


# The formats at None begin with a number or a partition, which is no first word of the others.
BY_HEAD: Final = _by_head()


# Known lines of these loggers that are no events: announcements, and the work of threads and connections.
_CHATTER: Final = (
    rb"(?:Starting|Started|Stopped|Stopping|Resigning|Shutting down|Shutdown completed|shutdownInitiated .*)$|"
    rb"Controller \d+(?:'s connection| trying to connect| connected to| fails to send)|"
    rb"Broker \d+ has been elected as the controller|"
    rb"(?:Started|Stopped|Stopping) (?:replica|partition) state machine|Stopped fetchers as part of|"
    rb"(?:Initializing|Initialized|Loading|Registering|Unregistering|Unregister|Register|Updating|Updated) "
    rb"(?:manager|controller|replica state|partition state|topic deletion|broker epochs|handlers|BrokerModif|ISRs)|"
    rb"Deleting (?:log dir event|isr change) notifications|Triggering (?:online|offline) (?:replica|partition) state|"
    rb"Currently shutting brokers|Current list of topics|Fetching topic deletions|List of topics |"
    rb"Topics not in preferred replica|Preferred replicas by broker |Checking need to trigger|Creating FeatureZNode|"
    rb"(?:Reading|Incrementing) controller epoch |Removed \w*\(\) from list of shutting down brokers\.$|"
    rb"(?:Read current|Acquired new) producerId block |There is no producerId block yet |"
    rb"Ignoring (?:(?:AllocateProducerIds|registration of new brokers) due to|request to reassign) |"
    rb"Rejecting AlterPartition from node |"
    rb"Sending (?:update metadata request|MetadataRequest)|Broker \d+ was elected as controller instead of |"
    rb"Waiting for any successful result for election type|All (?:shutting down brokers: |leaders = )|Live brokers: |"
    rb"The topic partition \S+ was marked as RECOVERING|"
    # Before 1.0.
    rb"(?:Starting|Stopped) $|Controller (?:starting up|startup complete|shutdown complete)$|"
    rb"topics not in preferred replica |preferred replicas by broker |checking need to trigger partition rebalance|"
    rb"starting the partition rebalance scheduler|Invoking state change to \w+ for (?:replicas|partitions) |"
    rb"(?:Broker change|Topic change|Controller epoch) listener fired |Add Partition triggered |"
    rb"New partitions to be added |Registering IsrChangeNotificationListener|Resuming reassignment of partitions: |"
    rb"Partitions being reassigned: |After leader election, leader cache is updated to |"
    rb"Some broker in ISR is alive for |No broker in ISR is alive for \S+ Pick the leader from the alive [a-z ]+: $|"
    rb"Broker \d+ (?:stopped fetchers as part of |started fetcher to new leader as part of |"
    rb"skipped the (?:adding-fetcher step of|become-\w+ state change) |truncated logs and checkpointed recovery |"
    rb"finished handling stop replica |ignoring stop replica )|"
    rb"Skipped the (?:(?:adding-fetcher|update topic ID) step of|become-\w+ state change (?:for|after marking)) |"
    rb"Truncated logs and checkpointed recovery boundaries for partition |Started fetcher to new leader as part of |"
    rb"Updating (?:log|PartitionFetchState) for \S+ to (?:assign|remove log) topic ID |"
    # Reassignments: in the memory and in the requests of a controller; C10 has their progress.
    rb"Updating assignment of partition |Skipping reassignment of |"
    rb"DEPRECATED: Partitions being reassign|No more partitions need to be reassigned\. |"
    rb"(?:Removing|Cannot remove) partitions \S.* from (?:the list of reassigned partitions in zoo|ZooKeeper because )|"
    rb"Deletion (?:started|successfully completed) for replicas |"
    # Of log4j, about the logger.
    rb"preRegister called\. Server=|"
    # With KRaft: the quorum about itself, and brokers about records that they read from the metadata log.
    rb"Replayed (?!PartitionRecord|TopicRecord|RemoveTopicRecord|UnregisterBrokerRecord|partition assignment)|"
    rb"Creating new QuorumController |Performing controller activation|"
    rb"(?:Create|Delete)(?:Topics|Partitions) result|Validate-only CreateTopics result|createTopics result|"
    rb"Removed ELRs from |Successfully altered \d+ out of |"
    rb"(?:Activated|Deactivated) periodic tasks: |Registering periodic task |Periodic task \w+ generated |"
    rb"Verified that \d+ broker|Ignoring no-op registration change |Updated the controlled shutdown offset |"
    rb"Broker \d+ (?:registered with version range |assigned partition )|No stale brokers found|"
    rb"Cannot trigger unclean leader election for offline partition \S+ because |"
    # The work behind them, at DEBUG and TRACE.
    rb"(?:Executing|Processed) \S+?(?:\.$| in )|Completing (?:purgatory items|read-only operation) |"
    rb"Read-(?:only|write) operation |Replaying (?:log record|batch|snapshot|commits) |"
    rb"(?:Appended|Atomically appended) \d+ record|Generating cluster-level min\.insync|"
    rb"Directories \[[^\]]*\] in broker \d+ marked cordoned|"
    rb"Skipping handling commit |(?:cancelling|rescheduling) \w+ |Node \d+ has altered ISR |"
    rb"A partition will have an empty ISR\. |Failed to find a new leader with |Try to elect last known leader |"
    rb"Checked for a partition change quota |Deleting topic \S+ with ID |Starting deletion of topic with ID |"
    rb"(?:Rejecting AlterPartition request|Ignoring AlterPartition due to (?:unknown|stale) broker) |"
    rb"Fenced broker \d+ has requested and been granted an immediate shutdown|"
    rb"The request from broker \d+ to (?:shut down can|unfence can)|Broker \d+ is in controlled shutdown state, but |"
    rb"Principal = \S|"
    rb"[a-z][\w.@]+(?:\[[^\]]*\])?(?:\(-?\d+\))?: (?:(?:event )?(?:failed with|unable to start processing because of) |"
    rb"controller event queue)|unable to start processing \S+ because of |(?:Fenced|Unfenced) broker: |"
    rb"Starting to replay snapshot |The metadata log appears to be empty\. |No metadata\.version feature level record |"
    rb"maybeCompleteAuthorizerInitialLoad: |(?:Scheduling|Cancelling deferred) write event |"
    rb"Applied ISR change record: |"
    rb"Transitioning \d+ partition\(s\) to local |Creating new partition |Deleting \d+ partition\(s\)|"
    rb"The broker is (?:in )?(?:STARTING|RECOVERY|RUNNING|PENDING_CONTROLLED_SHUTDOWN)\b|"
    rb"The controller has asked us to exit |Sending broker registration |"
    rb"Unable to (?:register the broker|send a heartbeat) because |Expected partition |"
    rb"Broker \d+ sent a (?:heartbeat|registration) request but |"
    rb"Started fetchers as part of |"
    rb"Partitions (?:undergoing|that completed|already)|(?:Skipping|Resuming) preferred replica election"
)


def _alternatives(expression: bytes) -> list[bytes]:
    """Splits an expression at the bars that are outside brackets."""
    parts, depth, begin, index = [], 0, 0, 0
    while index < len(expression):
        character = expression[index : index + 1]
        if character == b"|" and not depth:
            parts.append(expression[begin:index])
            begin = index + 1
        depth += (character in (b"(", b"[")) - (character in (b")", b"]"))
        index += 2 if character == b"\\" else 1
    return [*parts, expression[begin:]]


def _initials(alternative: bytes) -> set[bytes]:
    if alternative.startswith(b"[a-z]"):
        return {bytes([letter]) for letter in range(ord("a"), ord("z") + 1)}
    if alternative.startswith(b"(?:"):
        end = next(index for index in range(len(alternative)) if _closes(alternative[: index + 1]))
        return {letter for inner in _alternatives(alternative[3:end]) for letter in _initials(inner)}
    if not alternative[:1].isalpha():
        raise ValueError(f"{alternative!r} does not begin with a letter")
    return {alternative[:1]}


def _closes(begin: bytes) -> bool:
    return begin.endswith(b")") and begin.count(b"(") - begin.count(b"\\(") == begin.count(b")") - begin.count(b"\\)")


def _by_initial() -> dict[bytes, "re.Pattern[bytes]"]:
    by_letter: dict[bytes, list[bytes]] = {}
    for alternative in _alternatives(_CHATTER):
        for letter in _initials(alternative):
            by_letter.setdefault(letter, []).append(alternative)
    return {letter: re.compile(b"|".join(alternatives)) for letter, alternatives in by_letter.items()}


# A message is matched against a tenth of the alternatives. At TRACE, nine lines of ten are such lines.
_CHATTER_BY_INITIAL: Final = _by_initial()


def is_chatter(message: bytes) -> bool:
    """Returns whether a message of our loggers is known and no event."""
    pattern = _CHATTER_BY_INITIAL.get(message[:1])
    return pattern is not None and pattern.match(message) is not None


def is_ours(logger: bytes) -> bool:
    """Returns whether the lines of a logger, named in full or in short, are expected to be known."""
    return logger.startswith(_OURS) or logger in _OURS_SHORT


def is_known(message: bytes, *, names_partition: bool) -> bool:
    """Returns whether a message has a format.

    Args:
        names_partition: whether the prefix before it names a partition.
    """
    candidates = (*BY_HEAD.get(message.split(b" ", 1)[0], ()), *BY_HEAD.get(None, ()))
    return any((names_partition or not format.by_prefix) and format.pattern.fullmatch(message) for format in candidates)


# Loggers, and prefixes of messages, of brokers and controllers; not of clients, Connect and Streams.
_OF_KAFKA: Final = re.compile(
    rb"state\.change\.logger|\bkafka\.(?:cluster|controller|coordinator|log|network|raft|server|zk|zookeeper)\.|"
    rb"\borg\.apache\.kafka\.(?:controller|coordinator|image|metadata|network|raft|server|storage)\.|"
    rb"\[(?:Broker|BrokerLifecycleManager|BrokerServer|Controller|ControllerServer|KafkaRaftServer|KafkaServer|"
    rb"LogLoader|Partition|QuorumController|RaftManager|ReplicaManager) [^\]]{0,300}?(?:id|nodeId|broker)=\d"
)
# One of these is in each of them; a quick first test.
MARKS: Final = (
    b"kafka.",
    b"state.change.logger",
    b"Broker",
    b"Controller",
    b"Kafka",
    b"Log",
    b"Partition",
    b"Manager",
)
# A time of day, or milliseconds or seconds since 1970: files of settings name the same loggers, and have no times.
_TIME: Final = re.compile(rb"\d\d:\d\d:\d\d|(?<!\d)[12]\d{9}(?:\d{3}){0,3}(?!\d)")


def is_of_kafka(line: bytes) -> bool:
    """Returns whether a line, in any form, names a logger or a writer of brokers or controllers, and a time."""
    return _OF_KAFKA.search(line) is not None and _TIME.search(line) is not None
