"""Which format a message has: looked up by its first word, then tried one after the other.

No message has two formats; a test holds every known line against all of them.
"""

import re
from typing import Final

from .format import Format
from .formats import broker, controllership, controlling, kraft, legacy, partitions, replicas, sending, server, sessions

# The most frequent first, among those with the same first word.
FORMATS: Final[tuple[Format, ...]] = (
    *partitions.FORMATS,
    *replicas.FORMATS,
    *sending.FORMATS,
    *broker.FORMATS,
    *server.FORMATS,
    *sessions.FORMATS,
    *controllership.FORMATS,
    *controlling.FORMATS,
    *kraft.FORMATS,
    *legacy.FORMATS,
)
BY_ID: Final = {each.id: each for each in FORMATS}

# Loggers whose every line should be understood.
_OURS: Final = (b"state.change.logger", b"kafka.controller", b"org.apache.kafka.controller")


def _by_head() -> dict[bytes | None, tuple[Format, ...]]:
    heads: dict[bytes | None, tuple[Format, ...]] = {}
    for each in FORMATS:
        heads[each.head] = (*heads.get(each.head, ()), each)
    return heads


# Those of None begin with a number or a partition, and so with no first word of the others.
BY_HEAD: Final = _by_head()


# What these loggers also say, and nobody asks for: what they are about to do, and what threads and connections do.
_CHATTER: Final = re.compile(
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
    rb"Replayed (?!PartitionRecord)|Creating new QuorumController |Performing controller activation|"
    rb"(?:No previous registration found for|Registering a new incarnation of) broker |CreateTopics result|"
    rb"(?:Rejecting AlterPartition request|Ignoring AlterPartition due to (?:unknown|stale) broker) |"
    rb"Fenced broker \d+ has requested and been granted an immediate shutdown|"
    rb"The request from broker \d+ to (?:shut down|unfence can)|Broker \d+ is in controlled shutdown state, but |"
    rb"[a-z]\w+: (?:event (?:failed|unable)|changing \d+ partition|controller event queue)|"
    rb"Transitioning \d+ partition\(s\) to local |Creating new partition |Started fetchers as part of |"
    rb"Partitions (?:undergoing|that completed|already)|(?:Skipping|Resuming) preferred replica election",
)


def is_chatter(message: bytes) -> bool:
    """Whether a message of our loggers is known, and tells nothing that is asked of logs."""
    return _CHATTER.match(message) is not None


def is_ours(logger: bytes) -> bool:
    """Whether a logger writes what should be understood."""
    return logger.startswith(_OURS)
