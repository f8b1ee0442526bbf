"""Random requests and responses of every shape that the protocol allows."""

from typing import Any

import hypothesis.strategies as st
import numpy as np

from kactl.decide.messages.control import (
    KafkaRequest as Request,
)
from kactl.decide.messages.control import (
    KafkaResponse as Response,
)
from kactl.decide.messages.control import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    PartitionStates,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.model import NO_BROKER, ZERO_ID, Broker, Endpoint, TopicRef

from .kio_codec import PROTOCOLS

LISTENER = "INTERNAL"

# Strategies are module constants: hypothesis validates each new one, which takes longer than drawing from it.
switches = st.booleans()
random_seeds = st.integers(0, 2**32 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
# From 127 bytes on, the length of a string has a second byte. Topics have no such letters; hosts, racks and listeners
# may.
letters = st.characters(exclude_categories=["Cs"])
names = st.one_of(st.text(letters, max_size=12), st.text("xé漢🦓", min_size=50, max_size=140), st.just("n" * 249))
ids = st.one_of(st.just(ZERO_ID), st.binary(min_size=16, max_size=16))
endpoints = st.builds(
    Endpoint,
    listener=st.sampled_from([LISTENER, "CLIENT", "é" * 70, ""]),
    host=names,
    port=st.integers(0, 65535),
    protocol=st.sampled_from(PROTOCOLS),
)
brokers = st.builds(
    Broker,
    id=st.integers(0, 2**31 - 1),
    epoch=st.just(-1),
    # The listeners of a broker differ. Sometimes there are so many that their number takes a second byte.
    endpoints=st.one_of(
        st.lists(endpoints, max_size=4, unique_by=lambda endpoint: endpoint.listener).map(tuple),
        st.just(tuple(Endpoint(f"L{at}", "h", at) for at in range(130))),
    ),
    rack=st.one_of(st.none(), names),
)


some_brokers = st.lists(brokers, max_size=4, unique_by=lambda broker: broker.id).map(tuple)
some_topics = st.lists(st.builds(TopicRef, name=names, id=ids), max_size=5, unique_by=lambda ref: ref.name)
row_counts = st.one_of(st.integers(1, 6), st.just(130))
widths = st.one_of(st.integers(0, 5), st.just(130))
gap_shares = st.sampled_from([0.0, 0.1, 0.5, 1.0])
broker_epochs = st.integers(-1, 2**63 - 1)
request_kinds = st.sampled_from([LeaderAndIsr, UpdateMetadata, StopReplica])
error_codes = st.sampled_from([0, 11, 77, -1])
answered_shares = st.sampled_from([0.0, 0.7, 1.0])


@st.composite
def topics_of_rows(draw: st.DrawFn) -> tuple[tuple[TopicRef, ...], Any]:
    """Some topics and their row counts: at least one, and sometimes more than 127."""
    found = draw(some_topics)
    sizes = [draw(row_counts) for _ in found]
    return tuple(found), np.repeat(np.arange(len(found), dtype=np.int32), sizes)


any_topics = topics_of_rows()


@st.composite
def replica_lists(draw: st.DrawFn, count: int, *, may_be_none: bool = False) -> Any:
    """Returns int32[W, count] with gaps anywhere. Replication factors: 1 to 5, rarely one that takes a second byte."""
    if may_be_none and draw(switches):
        return None
    width = draw(widths)
    random = np.random.default_rng(draw(random_seeds))
    column = random.integers(0, 2**31 - 1, (width, count), dtype=np.int32, endpoint=True)
    gaps = draw(gap_shares)
    column[random.random(column.shape) < gaps] = NO_BROKER
    return column


@st.composite
def partition_states(draw: st.DrawFn, *, of: type[LeaderAndIsr] | type[UpdateMetadata]) -> PartitionStates:
    topics, topic = draw(any_topics)
    count = len(topic)
    random = np.random.default_rng(draw(random_seeds))

    def ints() -> Any:
        return random.integers(-(2**31), 2**31 - 1, count, dtype=np.int32, endpoint=True)

    def bools() -> Any:
        return None if draw(switches) else random.random(count) < 0.5

    common: Any = {
        "topics": topics,
        "topic": topic,
        **{name: ints() for name in ("partition", "controller_epoch", "leader", "leader_epoch", "partition_epoch")},
        "isr": draw(replica_lists(count)),
        "replicas": draw(replica_lists(count)),
    }
    if of is UpdateMetadata:
        return PartitionStates(**common, offline_replicas=draw(replica_lists(count, may_be_none=True)))
    adding, removing = draw(replica_lists(count, may_be_none=True)), draw(replica_lists(count, may_be_none=True))
    return PartitionStates(**common, adding=adding, removing=removing, is_new=bools(), recovering=bools())


@st.composite
def requests(draw: st.DrawFn) -> Request:
    sender: Any = {
        "controller_id": draw(int32),
        "controller_epoch": draw(int32),
        "broker_epoch": draw(broker_epochs),
    }
    live = draw(some_brokers)
    kind = draw(request_kinds)
    if kind is LeaderAndIsr:
        states = draw(partition_states(of=LeaderAndIsr))
        return LeaderAndIsr(**sender, states=states, live_leaders=live)
    if kind is UpdateMetadata:
        states = draw(partition_states(of=UpdateMetadata))
        return UpdateMetadata(**sender, states=states, live_brokers=live)
    topics, topic = draw(any_topics)
    random = np.random.default_rng(draw(random_seeds))
    return StopReplica(
        **sender,
        topics=topics,
        topic=topic,
        partition=random.integers(0, 2**31 - 1, len(topic), dtype=np.int32),
        leader_epoch=random.integers(-2, 1000, len(topic), dtype=np.int32),
        delete=random.random(len(topic)) < 0.5,
    )


any_request = requests()


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[Request, Response]:
    """A request and a response to it: some of its partitions, in the request's order of topics."""
    request = draw(any_request)
    error = draw(error_codes)
    if isinstance(request, UpdateMetadata):
        return request, UpdateMetadataResponse(error)
    states = request.states if isinstance(request, LeaderAndIsr) else request
    random = np.random.default_rng(draw(random_seeds))
    kept = random.random(len(states)) < draw(answered_shares)
    which, topic = np.unique(states.topic[kept], return_inverse=True)
    errors = PartitionErrors(
        tuple(states.topics[at].name for at in which),
        topic.astype(np.int32),
        states.partition[kept],
        random.choice(np.array([0, 3, 11, 56, -1], np.int16), int(kept.sum())),
    )
    kind = LeaderAndIsrResponse if isinstance(request, LeaderAndIsr) else StopReplicaResponse
    return request, kind(error, errors)
