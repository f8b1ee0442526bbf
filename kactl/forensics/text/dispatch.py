"""Which format a message has: looked up by its first word, then tried one after the other.

No message has two formats; a test holds every known line against all of them.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from kactl.forensics.event_types import Role

from .format import ZOOKEEPER_LAST, Format
from .formats import broker, controller_log, kraft, legacy, server_log, state_change


def _until_zookeeper(formats: Iterable[Format]) -> Iterator[Format]:
    """Formats of controllers in ZooKeeper mode, and of the requests that only they send: 4.0 writes none of them."""
    for each in formats:
        with_requests = each.role is Role.CONTROLLER or "request" in each.fills or "request" in each.says
        yield each._replace(until=min(each.until, ZOOKEEPER_LAST)) if with_requests else each


# The most frequent first, among those with the same first word.
FORMATS: Final[tuple[Format, ...]] = (
    *_until_zookeeper(
        (
            *state_change.FORMATS,
            *broker.FORMATS,
            *server_log.FORMATS,
            *controller_log.FORMATS,
        )
    ),
    *kraft.FORMATS,
    *legacy.FORMATS,
)
BY_ID: Final = {each.id: each for each in FORMATS}

# Loggers whose every line should be understood.
_OURS: Final = (
    b"state.change.logger",
    b"kafka.controller",
    b"org.apache.kafka.controller",
    b"kafka.server.BrokerLifecycleManager",
    b"org.apache.kafka.server.BrokerLifecycleManager",
)
# The same where a layout prints the last part of a logger's name only, as with `%c{1}`.
STATE_SHORT: Final = b"logger"
_OURS_SHORT: Final = frozenset(
    {
        STATE_SHORT,
        b"BrokerLifecycleManager",
        # With ZooKeeper.
        b"ControllerChannelManager",
        b"ControllerEventManager",
        b"ControllerEventManager$ControllerEventThread",
        b"ControllerEventThread",
        b"KafkaController",
        b"OfflinePartitionLeaderSelector",
        b"PartitionStateMachine",
        b"ReplicaStateMachine",
        b"RequestSendThread",
        b"TopicDeletionManager",
        b"ZkPartitionStateMachine",
        b"ZkReplicaStateMachine",
        # With KRaft.
        b"AclControlManager",
        b"ActivationRecordsGenerator",
        b"BrokerHeartbeatManager",
        b"ClientQuotaControlManager",
        b"ClusterControlManager",
        b"ConfigurationControlManager",
        b"DelegationTokenControlManager",
        b"EventPerformanceMonitor",
        b"FeatureControlManager",
        b"OffsetControlManager",
        b"PartitionChangeBuilder",
        b"PartitionReassignmentReplicas",
        b"PeriodicTaskControlManager",
        b"ProducerIdControlManager",
        b"QuorumController",
        b"ReplicationControlManager",
        b"ScramControlManager",
        b"SlowEventsLogger",
    }
)


def _by_head() -> dict[bytes | None, tuple[Format, ...]]:
    heads: dict[bytes | None, tuple[Format, ...]] = {}
    for each in FORMATS:
        heads[each.head] = (*heads.get(each.head, ()), each)
    return heads


# Those of None begin with a number or a partition, and so with no first word of the others.
BY_HEAD: Final = _by_head()


# What these loggers also say, and nobody asks for: what they are about to do, and what threads and connections do.
_CHATTER: Final = (
    rb"(?:Starting|Started|Stopped|Stopping|Resigning|Shutting down|Shutdown completed|shutdownInitiated .*)$|"
    rb"Controller \d+(?:'s connection| trying to connect| connected to| fails to send)|"
    rb"Broker \d+ has been elected as the controller|"
    rb"(?:Started|Stopped|Stopping) (?:replica|partition) state machine|Stopped fetchers as part of|"
    rb"(?:Initializing|Initialized|Loading|Registering|Unregistering|Unregister|Register|Updating|Updated) "
    rb"(?:manager|controller|replica state|partition state|topic deletion|broker epochs|handlers|BrokerModif|ISRs)|"
    rb"Deleting (?:log dir event|isr change) notifications|Triggering (?:online|offline) (?:replica|partition) state|"
    rb"Currently shutting brokers|Current list of topics|Fetching topic deletions|List of topics |"
    rb"Topics not in preferred replica|Checking need to trigger|Creating FeatureZNode|"
    rb"Sending (?:update metadata request|MetadataRequest)|Broker \d+ was elected as controller instead of |"
    rb"Waiting for any successful result for election type|All (?:shutting down brokers: |leaders = )|Live brokers: |"
    rb"The topic partition \S+ was marked as RECOVERING|"
    rb"Skipped the (?:adding-fetcher step of|become-\w+ state change for) |"
    # Without ZooKeeper: the quorum about itself, and brokers about what the metadata log has told them.
    rb"Replayed (?!PartitionRecord|TopicRecord|RemoveTopicRecord|UnregisterBrokerRecord|partition assignment)|"
    rb"Creating new QuorumController |Performing controller activation|"
    rb"(?:Create|Delete)(?:Topics|Partitions) result|Removed ELRs from |Successfully altered \d+ out of |"
    rb"(?:Activated|Deactivated) periodic tasks: |Registering periodic task |Periodic task \w+ generated |"
    rb"Verified that \d+ broker|Ignoring no-op registration change |Updated the controlled shutdown offset |"
    rb"Broker \d+ (?:registered with version range |assigned partition )|No stale brokers found|"
    rb"Cannot trigger unclean leader election for offline partition \S+ because |"
    # What it does for it, at DEBUG and TRACE.
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
    rb"[a-z]\w+(?:\[[^\]]*\])?(?:\(-?\d+\))?: (?:event (?:failed|unable)|controller event queue)|"
    rb"Transitioning \d+ partition\(s\) to local |Creating new partition |Deleting \d+ partition\(s\)|"
    rb"The broker is (?:in )?(?:STARTING|RECOVERY|RUNNING|PENDING_CONTROLLED_SHUTDOWN)\b|"
    rb"The controller has asked us to exit |Sending broker registration |"
    rb"Unable to (?:register the broker|send a heartbeat) because |Expected partition |"
    rb"Broker \d+ sent a (?:heartbeat|registration) request but |"
    rb"Started fetchers as part of |"
    rb"Partitions (?:undergoing|that completed|already)|(?:Skipping|Resuming) preferred replica election"
)


def _alternatives(expression: bytes) -> list[bytes]:
    """The parts of an expression between the bars that are in no brackets."""
    parts, depth, begin, at = [], 0, 0, 0
    while at < len(expression):
        each = expression[at : at + 1]
        if each == b"|" and not depth:
            parts.append(expression[begin:at])
            begin = at + 1
        depth += (each in (b"(", b"[")) - (each in (b")", b"]"))
        at += 2 if each == b"\\" else 1
    return [*parts, expression[begin:]]


def _initials(alternative: bytes) -> set[bytes]:
    """The letters with which a message may begin that has this form."""
    if alternative.startswith(b"[a-z]"):
        return {bytes([letter]) for letter in range(ord("a"), ord("z") + 1)}
    if alternative.startswith(b"(?:"):
        group = next(at for at in range(len(alternative)) if _closes(alternative[: at + 1]))
        return {letter for each in _alternatives(alternative[3:group]) for letter in _initials(each)}
    if not alternative[:1].isalpha():
        raise ValueError(f"{alternative!r} begins with no letter")
    return {alternative[:1]}


def _closes(begin: bytes) -> bool:
    return begin.endswith(b")") and begin.count(b"(") - begin.count(b"\\(") == begin.count(b")") - begin.count(b"\\)")


def _by_initial() -> dict[bytes, "re.Pattern[bytes]"]:
    found: dict[bytes, list[bytes]] = {}
    for each in _alternatives(_CHATTER):
        for letter in _initials(each):
            found.setdefault(letter, []).append(each)
    return {letter: re.compile(b"|".join(forms)) for letter, forms in found.items()}


# A message is held against a tenth of the forms: at TRACE nine lines of ten are such.
_CHATTER_BY_INITIAL: Final = _by_initial()


def is_chatter(message: bytes) -> bool:
    """Whether a message of our loggers is known, and tells nothing that is asked of logs."""
    forms = _CHATTER_BY_INITIAL.get(message[:1])
    return forms is not None and forms.match(message) is not None


def is_ours(logger: bytes) -> bool:
    """Whether a logger, by its whole or its short name, writes what should be understood."""
    return logger.startswith(_OURS) or logger in _OURS_SHORT


def is_known(message: bytes, *, names_partition: bool) -> bool:
    """Whether a message has a format.

    Args:
        names_partition: whether the prefix before it names a partition.
    """
    candidates = (*BY_HEAD.get(message.split(b" ", 1)[0], ()), *BY_HEAD.get(None, ()))
    return any((names_partition or not each.by_prefix) and each.pattern.fullmatch(message) for each in candidates)
