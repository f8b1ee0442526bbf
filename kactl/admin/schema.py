"""What travels over the admin API, both ways. The server, its OpenAPI document and the command line share these.

Light to import: msgspec and the words of the cluster, no server and no columns. What is asked for refuses unknown
fields; what is answered may gain fields, and readers pass over those that they do not know.

A leader of -1 is none; epochs of -1 are not known yet. Times are wall clock, ms since 1970. Order of partitions is
always (topic, partition).
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

LIMIT_DEFAULT: Final = 500
LIMIT_MAX: Final = 10_000
# What one election may name; `all` has no such bound. A body of that many names fits the server's limit for bodies.
ELECTION_PARTITIONS_MAX: Final = 50_000
REASON_LENGTH_MAX: Final = 1000
TIMEOUT_MS_MAX: Final = 300_000

PartitionStateName = Literal["new", "online", "offline", "absent"]
ReplicaStateName = Literal[
    "new", "online", "offline", "deletion_started", "deletion_successful", "deletion_ineligible", "absent"
]
BrokerStateName = Literal["live", "shutting_down", "dead"]
EventKind = Literal["controller", "broker", "topic", "partition", "replica"]
ElectionType = Literal["preferred", "unclean"]
Int32 = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Reason = Annotated[str, Meta(max_length=REASON_LENGTH_MAX, description="why; kept in the log of the server")]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Common to all that is answered."""


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Common to all that is asked."""


# -- answers -----------------------------------------------------------------------------------------------------------


class AsOf(Answer, frozen=True):
    """The moment of which an answer speaks: follow the events behind `seq` to stay up to date."""

    epoch: int
    seq: int


class Probe(Answer, frozen=True):
    """Whether this instance lives or is ready. `status`: ok, or starting."""

    status: str
    detail: str = ""


class ControllerInfo(Answer, frozen=True):
    """This instance, and who is the controller.

    Attributes:
        node_id: of this instance.
        active_id: who holds the controllership as far as this instance knows; null if nobody does.
        ready: this instance is the controller and has taken over wholly.
        epoch: under which this instance acts; 0 if it is not the controller.
        since_ms: since when it does; null if it is not the controller, or it has been for longer than events are kept.
        state, state_number: what it is doing, in Kafka's words and numbers.
        changes: how often this instance was elected since it started.
        queue_size: events that wait.
        participants: ids of the brokers that run in the same process, and can be killed and restarted.
    """

    node_id: int
    cluster: str
    version: str
    is_active: bool
    ready: bool
    active_id: int | None
    epoch: int
    since_ms: int | None
    state: str
    state_number: int
    changes: int
    queue_size: int
    participants: tuple[int, ...]
    as_of: AsOf


class ClusterInfo(Answer, frozen=True):
    """The cluster in numbers; zeros while this instance is not the controller.

    Attributes:
        brokers: that are registered; `brokers_dead` hold replicas and are not registered.
        offline_partitions: in state offline, those of topics that are being deleted left out.
        preferred_imbalance: partitions that are not led by their preferred replica.
    """

    cluster: str
    controller_id: int | None
    epoch: int
    brokers: int
    brokers_dead: int
    topics: int
    partitions: int
    offline_partitions: int
    under_replicated_partitions: int
    preferred_imbalance: int
    as_of: AsOf


class EndpointInfo(Answer, frozen=True):
    """Where one listener of a broker can be reached."""

    listener: str
    host: str
    port: int
    protocol: str


class BrokerInfo(Answer, frozen=True):
    """One broker: registered, or dead and still assigned.

    Attributes:
        epoch: of its registration; null if it is dead.
        leaders: partitions that it leads; `replicas`: that are assigned to it.
        leader_skew, replica_skew: by how much that differs from an even share among all brokers, in percent.
        out_of_sync: assigned replicas that are not in the ISR.
        queue_size: requests that wait for it, the one in flight included; `queue_oldest_ms`: for how long.
        last_error: why the last request did not get through; empty if it did.
        participant: it runs in the process of this server, and can be killed and restarted over this API.
    """

    id: int
    state: BrokerStateName
    epoch: int | None
    rack: str | None
    endpoints: tuple[EndpointInfo, ...]
    is_controller: bool
    leaders: int
    leader_skew: float
    replicas: int
    replica_skew: float
    out_of_sync: int
    queue_size: int
    queue_oldest_ms: float
    last_error: str
    participant: bool


class BrokerList(Answer, frozen=True):
    """All brokers, by id."""

    items: tuple[BrokerInfo, ...]
    as_of: AsOf


class PartitionInfo(Answer, frozen=True):
    """One partition.

    Attributes:
        isr: in the order of the assignment.
        offline: it counts as offline; `under_replicated`: a replica is not in sync.
        preferred_leader: the first assigned replica; -1 if nothing is assigned.
        replica_states: by broker id.
    """

    topic: str
    partition: int
    state: PartitionStateName
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    partition_epoch: int
    controller_epoch: int
    recovering: bool
    offline: bool
    under_replicated: bool
    preferred_leader: int
    replica_states: dict[int, ReplicaStateName]


class PartitionPage(Answer, frozen=True):
    """Some partitions. `matched`: how many there are on all pages; `next_cursor`: null on the last page."""

    items: tuple[PartitionInfo, ...]
    matched: int
    next_cursor: str | None
    as_of: AsOf


class TopicInfo(Answer, frozen=True):
    """One topic in numbers. `id`: in Kafka's text form; null if it has none.

    Attributes:
        replication_factor: the largest of its partitions.
        deleting: it waits for deletion.
    """

    name: str
    id: str | None
    partitions: int
    replication_factor: int
    offline_partitions: int
    under_replicated_partitions: int
    deleting: bool


class TopicPage(Answer, frozen=True):
    """Some topics, by name."""

    items: tuple[TopicInfo, ...]
    matched: int
    next_cursor: str | None
    as_of: AsOf


class TopicDetail(Answer, frozen=True):
    """One topic. `config`: its overrides; null if the store could not be read now.

    `partitions` is the first page of them; its cursor goes on at `/v1/partitions?topic=`.
    """

    topic: TopicInfo
    config: dict[str, str] | None
    partitions: PartitionPage


class TopicCreated(Answer, frozen=True):
    """A topic was created, or would be: `dry_run`."""

    name: str
    id: str | None
    dry_run: bool


class BrokerActed(Answer, frozen=True):
    """What was done to a participant. `action`: kill, restart."""

    broker: int
    action: str


class ElectionResult(Answer, frozen=True):
    """What became of one partition, or of a dry run what would.

    Attributes:
        error_code, error_name: Kafka's; 0 and NONE if ok.
        leader: now, or of a dry run what it would be; `previous`: the leader before.
    """

    topic: str
    partition: int
    outcome: Literal["ok", "not_needed", "failed"]
    error_code: int
    error_name: str
    message: str
    leader: int
    previous: int


class ElectionAnswer(Answer, frozen=True):
    """One result for each partition that was asked for; of `all`, those that need no election are left out."""

    type: ElectionType
    dry_run: bool
    results: tuple[ElectionResult, ...]
    as_of: AsOf


# -- events ------------------------------------------------------------------------------------------------------------


class Event(Answer, frozen=True, tag_field="kind"):
    """Common to all: `seq` rises by one from event to event, and begins anew with the process."""

    seq: int
    time_ms: int
    controller_epoch: int


class ControllerEvent(Event, frozen=True, tag="controller"):
    """The controllership came or went. `what`: elected, resigned."""

    what: str
    controller_id: int
    cause: str


class BrokerEvent(Event, frozen=True, tag="broker"):
    """A broker came or went. `what`: started, bounced, failed, modified, directory-failed."""

    what: str
    broker: int
    broker_epoch: int


class TopicEvent(Event, frozen=True, tag="topic"):
    """A topic came, grew or vanished. `what`: created, grown, vanished."""

    what: str
    topic: str


class PartitionEvent(Event, frozen=True, tag="partition"):
    """A partition moved, got a leader, or could not. `refused`: why it could not; else empty."""

    topic: str
    partition: int
    from_state: PartitionStateName
    to_state: PartitionStateName
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    recovering: bool
    refused: str


class ReplicaEvent(Event, frozen=True, tag="replica"):
    """A replica moved."""

    topic: str
    partition: int
    broker: int
    from_state: ReplicaStateName
    to_state: ReplicaStateName


class ResetEvent(Event, frozen=True, tag="reset"):
    """Events up to `seq` are lost to this reader: read the present state, then go on behind `seq`."""


AnyEvent = ControllerEvent | BrokerEvent | TopicEvent | PartitionEvent | ReplicaEvent | ResetEvent


class EventPage(Answer, frozen=True):
    """Some events. `next_after`: behind which to read on; `as_of.seq`: the newest that there is."""

    items: tuple[AnyEvent, ...]
    next_after: int
    as_of: AsOf


# -- questions ---------------------------------------------------------------------------------------------------------


class NoQuestion(Question, frozen=True):
    """Nothing can be asked here."""


class BrokerPath(Question, frozen=True):
    """Which broker."""

    id: Int32


class TopicPath(Question, frozen=True):
    """Which topic."""

    topic: str


class PartitionPath(Question, frozen=True):
    """Which partition."""

    topic: str
    partition: Int32


Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="how many at the most")]
Cursor = Annotated[str, Meta(max_length=2000, description="`next_cursor` of the page before")]


class TopicQuery(Question, frozen=True):
    """Which topics."""

    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None


class PartitionQuery(Question, frozen=True):
    """Which partitions: those of which everything that is asked for holds. Lists are repeated, or have commas."""

    state: Annotated[list[PartitionStateName], Meta(description="in one of these states")] = []
    leader: Annotated[int, Meta(ge=-1, le=2**31 - 1, description="led by this broker; -1 for none")] | None = None
    replica: Annotated[int, Meta(ge=0, le=2**31 - 1, description="with an assigned replica on it")] | None = None
    topic: Annotated[list[str], Meta(max_length=1000, description="names; `*` and `?` stand for any characters")] = []
    offline: Annotated[bool, Meta(description="that count as offline, or do not")] | None = None
    urp: Annotated[bool, Meta(description="that are under-replicated, or are not")] | None = None
    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None


Kinds = Annotated[list[EventKind], Meta(description="of these kinds only")]


class StreamQuery(Question, frozen=True):
    """Where to begin. `Last-Event-ID` goes before `after`; without both, with what happens from now on."""

    after: Annotated[int, Meta(ge=0, description="behind the event of this number")] | None = None
    kinds: Kinds = []


class EventQuery(Question, frozen=True):
    """Which events. Without `after`, from the oldest that is kept."""

    after: Annotated[int, Meta(ge=0, description="behind the event of this number")] | None = None
    kinds: Kinds = []
    limit: Limit = LIMIT_DEFAULT


class PartitionName(Question, frozen=True):
    """A partition."""

    topic: str
    partition: Int32


ConfigKey = Annotated[str, Meta(min_length=1, max_length=255, pattern="^[a-zA-Z0-9._-]+$")]
ConfigValue = Annotated[str, Meta(max_length=4096)]


class TopicCreation(Question, frozen=True):
    """Create a topic.

    Attributes:
        partitions, replication_factor: 1 if they are not given.
        assignment: in their place: for each partition, from 0 on, the ids of its replicas, the preferred leader first.
        config: overrides, such as {"unclean.leader.election.enable": "true"}.
        timeout_ms: how long to wait until all partitions have a leader; 0 does not wait.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: list[Annotated[list[Int32], Meta(max_length=1000)]] | None = None
    config: Annotated[dict[ConfigKey, ConfigValue], Meta(max_length=100)] = {}
    dry_run: bool = False
    timeout_ms: Annotated[int, Meta(ge=0, le=TIMEOUT_MS_MAX)] = 30_000
    reason: Reason = ""


class ElectionRequest(Question, frozen=True):
    """Elect leaders: of the partitions named, or of `all` that need it. Exactly one of the two is given."""

    type: ElectionType
    partitions: Annotated[list[PartitionName], Meta(min_length=1, max_length=ELECTION_PARTITIONS_MAX)] | None = None
    all: bool = False
    dry_run: bool = False
    reason: Reason = ""


class BrokerAction(Question, frozen=True):
    """Kill or restart a participant; an empty body will do."""

    reason: Reason = ""


# -- errors ------------------------------------------------------------------------------------------------------------


class FieldError(Answer, frozen=True, omit_defaults=True):
    """What is wrong with one part of a request: of its body at a JSON `pointer`, or with a `parameter` or header."""

    detail: str
    pointer: str | None = None
    parameter: str | None = None
    header: str | None = None


class ProblemController(Answer, frozen=True):
    """Who is the controller, as far as it is known."""

    id: int | None
    epoch: int


class Problem(Answer, frozen=True):
    """Why a request was refused, as of RFC 9457; `application/problem+json`.

    Attributes:
        error_code, error_name: Kafka's number and name for it.
        retriable: the same request may go through later.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str
    error_code: int
    error_name: str
    retriable: bool
    controller: ProblemController
    errors: tuple[FieldError, ...] = ()
