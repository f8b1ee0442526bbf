"""Requests built from changes: recipients, content, and the last state of a partition that changes repeatedly."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np
import pytest

from kactl.decide.messages.control import (
    LeaderAndIsr,
    OrderReason,
    PartitionErrors,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
)
from kactl.decide.outbound import request_columns
from kactl.decide.outbound.batch import Addressed, RequestBatch, deletion_answers
from kactl.decide.state.cluster import Cluster
from kactl.model import NO_BROKER, Assignment, Broker, Leadership, TopicPartition
from kactl.model.errors import IllegalState
from kactl.stores.base import Leaderships, Names
from tests.oracle.batch import ObjectBatch
from tests.support.cluster_seeds import (
    CONTROLLER,
    EPOCH,
    ClusterSeed,
    PartitionSeed,
    ids_of,
    led,
    plain_object_request,
    plain_request,
    plain_states,
    plain_stops,
    rows_of,
    slots_of,
    tp,
)

FOO0, FOO1, BAR1 = tp("foo-0"), tp("foo-1"), tp("bar-1")
SEED = ClusterSeed(
    live=frozenset({1, 2, 3}),
    partitions={
        FOO0: PartitionSeed(replicas=(1, 2, 3), leadership=led(1, 4, (1, 2), 7)),
        FOO1: PartitionSeed(replicas=(2, 3, 1), leadership=led(2, 5, (2, 3, 1), 8, by=EPOCH - 1)),
        BAR1: PartitionSeed(replicas=(2, 3), leadership=led(3, 6, (3,), 9)),
    },
    topic_ids=ids_of(["foo", "bar"]),
)
LEADERLESS = dataclasses.replace(
    SEED,
    partitions={name: dataclasses.replace(partition, leadership=None) for name, partition in SEED.partitions.items()},
)
TWO_LEAVES_THREE_IS_GONE = dataclasses.replace(SEED, live=frozenset({1}), shutting_down=frozenset({2}))
ALL = ("foo-0", "foo-1", "bar-1")


class Gathered:
    """A batch over a cluster, filled by partition name."""

    def __init__(self, seed: ClusterSeed) -> None:
        self.cluster = seed.columns()
        self.batch = RequestBatch(self.cluster)

    def lead(self, brokers: Iterable[int], *names: str, is_new: bool = False) -> None:
        rows = rows_of(self.cluster, *names)
        self.batch.lead_and_follow(rows, slots_of(rows, *brokers), is_new=is_new)

    def stop(self, brokers: Iterable[int], *names: str, delete: bool) -> None:
        rows = rows_of(self.cluster, *names)
        self.batch.stop(rows, slots_of(rows, *brokers), delete=delete)

    def tell(self, brokers: Iterable[int], *names: str) -> None:
        self.batch.update_metadata(brokers, rows_of(self.cluster, *names) if names else None)

    def leadership(self, name: str, leadership: Leadership) -> None:
        self.cluster.put_leaderships(self.cluster.table.rows_named([tp(name)]), Leaderships.of([leadership]))

    def flush(self) -> list[Addressed]:
        return self.batch.flush()


def of_kind(sent: Iterable[Addressed], kind: type) -> dict[int, Any]:
    """Returns the requests of a kind by broker; at most one per broker."""
    named = [(each.broker, each.request) for each in sent if isinstance(each.request, kind)]
    assert len(named) == len(dict(named))
    return dict(named)


def leaders_sent(sent: Iterable[Addressed], broker: int) -> dict[Any, dict[str, Any]]:
    """Returns the content of the LeaderAndIsr to a broker."""
    return plain_states(of_kind(sent, LeaderAndIsr)[broker].states)


def metadata_sent(sent: Iterable[Addressed], broker: int) -> dict[Any, dict[str, Any]]:
    return plain_states(of_kind(sent, UpdateMetadata)[broker].states)


def stops_sent(sent: Iterable[Addressed], broker: int) -> dict[Any, dict[str, Any]]:
    return plain_stops(of_kind(sent, StopReplica)[broker])


# -- LeaderAndIsr ------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(314)
def test_broker_gets_one_request_for_all_its_partitions() -> None:
    gathered = Gathered(SEED)

    for name in ALL:
        gathered.lead([2], name)
    sent = gathered.flush()

    assert list(of_kind(sent, LeaderAndIsr)) == [2]
    request = of_kind(sent, LeaderAndIsr)[2]
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (CONTROLLER, EPOCH, 1002)
    assert [node.id for node in request.live_leaders] == [1, 2, 3]
    assert set(plain_states(request.states)) == {FOO0, FOO1, BAR1}
    assert set(metadata_sent(sent, 2)) == {FOO0, FOO1, BAR1}


@pytest.mark.scenario(315)
def test_is_new_is_kept_by_later_changes() -> None:
    gathered = Gathered(SEED)

    gathered.lead([2], "foo-0", is_new=True)
    gathered.leadership("foo-0", led(2, 5, (2,), 8))
    gathered.lead([2], "foo-0")
    sent = gathered.flush()

    assert list(leaders_sent(sent, 2)) == [FOO0]
    entry = leaders_sent(sent, 2)[FOO0]
    assert entry["is_new"]
    assert (entry["leader"], entry["leader_epoch"], entry["isr"], entry["version"]) == (2, 5, {2}, 8)


def test_is_new_is_per_recipient() -> None:
    gathered = Gathered(SEED)

    gathered.lead([2], "foo-1", "foo-0", is_new=True)
    gathered.lead([2, 3], *ALL)
    sent = gathered.flush()

    assert {name: entry["is_new"] for name, entry in leaders_sent(sent, 2).items()} == {
        FOO0: True,
        FOO1: True,
        BAR1: False,
    }
    assert not any(entry["is_new"] for entry in leaders_sent(sent, 3).values())


@pytest.mark.scenario(316)
def test_only_registered_brokers_receive_requests() -> None:
    gathered = Gathered(TWO_LEAVES_THREE_IS_GONE)

    gathered.lead([1, 2, 3], "foo-0")
    sent = gathered.flush()

    assert list(of_kind(sent, LeaderAndIsr)) == [1, 2]
    assert list(of_kind(sent, UpdateMetadata)) == [1, 2]


def test_only_registered_brokers_are_named_as_leaders() -> None:
    gathered = Gathered(TWO_LEAVES_THREE_IS_GONE)

    gathered.lead([2], *ALL)

    assert [node.id for node in of_kind(gathered.flush(), LeaderAndIsr)[2].live_leaders] == [1, 2]


@pytest.mark.scenario(317)
def test_recovery_state_and_topic_id_are_sent() -> None:
    gathered = Gathered(SEED)
    gathered.leadership("foo-0", led(1, 4, (1,), 7, recovering=True))

    gathered.lead([2], "foo-0", "foo-1")
    entries = leaders_sent(gathered.flush(), 2)

    assert {name: entry["recovering"] for name, entry in entries.items()} == {FOO0: True, FOO1: False}
    assert entries[FOO0]["topic_id"] == ids_of(["foo"])["foo"]


def test_missing_topic_id_is_sent_as_zero() -> None:
    gathered = Gathered(dataclasses.replace(SEED, topic_ids={}))

    gathered.lead([2], "foo-0")

    assert leaders_sent(gathered.flush(), 2)[FOO0]["topic_id"] == bytes(16)


def test_all_partition_columns_are_sent() -> None:
    moving = PartitionSeed(
        replicas=(4, 2, 1), adding=(4,), removing=(1,), leadership=led(2, 3, (1, 2, 9), 11, by=EPOCH - 3)
    )
    gathered = Gathered(dataclasses.replace(SEED, partitions={FOO0: moving}, topic_ids={}))

    gathered.lead([2], "foo-0")
    sent = gathered.flush()

    said = {
        "topic_id": bytes(16),
        "controller_epoch": EPOCH - 3,  # of the controller that decided it
        "leader": 2,
        "leader_epoch": 3,
        "isr": {1, 2, 9},
        "version": 11,
        "replicas": [4, 2, 1],
    }
    more = {"adding": [4], "removing": [1], "is_new": False, "recovering": False}
    assert leaders_sent(sent, 2)[FOO0] == said | more
    assert metadata_sent(sent, 2)[FOO0] == said | {"offline_replicas": [4]}


@pytest.mark.scenario(334)
def test_partition_without_recipients_is_sent_as_metadata() -> None:
    gathered = Gathered(SEED)

    gathered.lead([], "foo-0")
    sent = gathered.flush()

    assert of_kind(sent, LeaderAndIsr) == {}
    assert list(of_kind(sent, UpdateMetadata)) == [1, 2, 3]
    assert all(list(metadata_sent(sent, broker)) == [FOO0] for broker in (1, 2, 3))


# -- UpdateMetadata ----------------------------------------------------------------------------------------------------


@pytest.mark.scenario(318)
def test_metadata_contains_the_whole_cluster() -> None:
    gathered = Gathered(SEED)

    gathered.tell([2], *ALL)
    sent = gathered.flush()

    assert len(sent) == 1
    request = of_kind(sent, UpdateMetadata)[2]
    entries = plain_states(request.states)
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (CONTROLLER, EPOCH, 1002)
    assert {name: entry["leader"] for name, entry in entries.items()} == {FOO0: 1, FOO1: 2, BAR1: 3}
    assert {name: entry["isr"] for name, entry in entries.items()} == {FOO0: {1, 2}, FOO1: {2, 3, 1}, BAR1: {3}}
    assert [ref.name for ref in request.states.topics] == ["foo", "bar"]
    assert [ref.id for ref in request.states.topics] == [ids_of(["foo"])["foo"], ids_of(["bar"])["bar"]]
    assert request.live_brokers == tuple(gathered.cluster.brokers.values())


@pytest.mark.scenario(319)
def test_partitions_without_leadership_are_skipped() -> None:
    gathered = Gathered(LEADERLESS)

    gathered.tell([2], *ALL)
    sent = gathered.flush()

    request = of_kind(sent, UpdateMetadata)[2]
    assert len(request.states) == 0
    assert [node.id for node in request.live_brokers] == [1, 2, 3]


@pytest.mark.scenario(320)
@pytest.mark.scenario(331)
def test_topic_queued_for_deletion_is_sent_as_deleted() -> None:
    gathered = Gathered(dataclasses.replace(SEED, queued=frozenset({"foo"})))

    gathered.tell([2], *ALL)
    entries = metadata_sent(gathered.flush(), 2)

    said = {
        name: (entry["leader"], entry["leader_epoch"], entry["version"], entry["isr"])
        for name, entry in entries.items()
    }
    assert said == {FOO0: (-2, 0, 0, {1, 2}), FOO1: (-2, 0, 0, {2, 3, 1}), BAR1: (3, 6, 9, {3})}


@pytest.mark.scenario(321)
def test_live_brokers_are_sent_without_partitions() -> None:
    gathered = Gathered(TWO_LEAVES_THREE_IS_GONE)

    gathered.tell([1, 2, 3])
    sent = gathered.flush()

    assert list(of_kind(sent, UpdateMetadata)) == [1, 2]
    for request in of_kind(sent, UpdateMetadata).values():
        assert len(request.states) == 0
        assert [node.id for node in request.live_brokers] == [1, 2]


def test_replicas_of_brokers_in_shutdown_are_offline() -> None:
    partitions = {**SEED.partitions, FOO1: dataclasses.replace(SEED.partitions[FOO1], dirs_offline=(1,))}
    gathered = Gathered(dataclasses.replace(TWO_LEAVES_THREE_IS_GONE, partitions=partitions))

    gathered.tell([1], *ALL)
    entries = metadata_sent(gathered.flush(), 1)

    offline = {name: entry["offline_replicas"] for name, entry in entries.items()}
    assert offline == {FOO0: [2, 3], FOO1: [2, 3, 1], BAR1: [2, 3]}


def test_all_recipients_get_the_latest_state_of_all_partitions() -> None:
    gathered = Gathered(SEED)

    gathered.tell([3], "bar-1", "foo-0")
    gathered.leadership("bar-1", led(2, 7, (2, 17, 18), 10))  # unassigned members that widen the columns
    gathered.tell([1], "bar-1", "foo-1")
    sent = gathered.flush()

    assert list(of_kind(sent, UpdateMetadata)) == [1, 3]
    entries = metadata_sent(sent, 3)
    assert entries == metadata_sent(sent, 1)
    assert set(entries) == {FOO0, FOO1, BAR1}
    assert (entries[BAR1]["leader"], entries[BAR1]["isr"]) == (2, {2, 17, 18})


# -- StopReplica -------------------------------------------------------------------------------------------------------


def stop_response(request: StopReplica, cluster: Cluster, error: int = 0) -> list[Any]:
    """Returns (partition, error) of the deletions in a response to all of `request`."""
    names = [ref.name for ref in request.topics]
    errors = PartitionErrors(
        tuple(names), request.topic, request.partition, np.full(len(request.partition), error, np.int16)
    )
    said = deletion_answers(request, StopReplicaResponse(0, errors), cluster)
    pairs = zip(said.topic.tolist(), said.partition.tolist(), said.error.tolist(), strict=True)
    return [(f"{said.topics[topic]}-{partition}", code) for topic, partition, code in pairs]


@pytest.mark.scenario(322)
def test_stops_of_a_broker_share_a_request_without_deletions() -> None:
    gathered = Gathered(SEED)

    for name in ALL:
        gathered.stop([2], name, delete=False)
    sent = gathered.flush()

    assert len(sent) == 1
    assert {name: entry["delete"] for name, entry in stops_sent(sent, 2).items()} == dict.fromkeys(
        (FOO0, FOO1, BAR1), False
    )
    request = of_kind(sent, StopReplica)[2]
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (CONTROLLER, EPOCH, 1002)
    assert stop_response(request, gathered.cluster) == []


@pytest.mark.scenario(323)
@pytest.mark.parametrize("words", [(True, False), (False, True), (True, True)])
def test_deletion_is_kept_by_a_later_stop(words: tuple[bool, bool]) -> None:
    gathered = Gathered(SEED)

    for delete in words:
        gathered.stop([2], "foo-0", delete=delete)

    assert stops_sent(gathered.flush(), 2)[FOO0]["delete"]


@pytest.mark.scenario(324)
def test_epoch_and_response_of_a_topic_queued_for_deletion() -> None:
    gathered = Gathered(dataclasses.replace(SEED, queued=frozenset({"foo"})))

    gathered.stop([2], *ALL, delete=True)
    sent = gathered.flush()

    assert {name: entry["leader_epoch"] for name, entry in stops_sent(sent, 2).items()} == {FOO0: -2, FOO1: -2, BAR1: 6}
    assert stop_response(of_kind(sent, StopReplica)[2], gathered.cluster) == []


def test_response_with_participants_contains_topics_queued_for_deletion() -> None:
    gathered = Gathered(dataclasses.replace(SEED, queued=frozenset({"foo"})))
    gathered.cluster.holds.brokers_changed([Broker(1, 1, incarnation=b"x" * 16)])

    gathered.stop([2], *ALL, delete=True)
    request = of_kind(gathered.flush(), StopReplica)[2]

    assert stop_response(request, gathered.cluster) == [("foo-0", 0), ("foo-1", 0)]


@pytest.mark.scenario(325)
@pytest.mark.parametrize("error", [0, 56])
def test_response_contains_only_topics_in_deletion(error: int) -> None:
    gathered = Gathered(dataclasses.replace(SEED, queued=frozenset({"foo"}), started=frozenset({"foo"})))

    gathered.stop([2], *ALL, delete=True)
    request = of_kind(gathered.flush(), StopReplica)[2]

    assert stop_response(request, gathered.cluster, error) == [("foo-0", error), ("foo-1", error)]


@pytest.mark.scenario(326)
def test_response_to_stops_without_deletion_is_empty() -> None:
    gathered = Gathered(dataclasses.replace(SEED, queued=frozenset({"foo"}), started=frozenset({"foo"})))

    gathered.stop([2], "foo-0", "foo-1", delete=False)
    request = of_kind(gathered.flush(), StopReplica)[2]

    assert stop_response(request, gathered.cluster) == []


def test_response_contains_only_requested_deletions() -> None:
    gathered = Gathered(dataclasses.replace(SEED, queued=frozenset({"foo"}), started=frozenset({"foo"})))

    gathered.stop([2], "foo-1", delete=True)
    gathered.stop([2], "foo-0", delete=False)
    request = of_kind(gathered.flush(), StopReplica)[2]

    assert stop_response(request, gathered.cluster) == [("foo-1", 0)]
    assert stop_response(request, gathered.cluster) == [("foo-1", 0)]  # the query has no side effect


def test_empty_response_is_empty() -> None:
    gathered = Gathered(dataclasses.replace(SEED, queued=frozenset({"foo"}), started=frozenset({"foo"})))
    gathered.stop([2], "foo-1", delete=True)
    request = of_kind(gathered.flush(), StopReplica)[2]

    said = deletion_answers(request, StopReplicaResponse(41, PartitionErrors.none()), gathered.cluster)

    assert len(said) == 0


@pytest.mark.scenario(327)
def test_deletions_and_stops_share_a_request() -> None:
    gathered = Gathered(SEED)

    gathered.stop([2], "foo-1", "bar-1", delete=True)
    gathered.stop([2], "foo-0", delete=False)
    sent = gathered.flush()

    assert len(sent) == 1
    assert {name: entry["delete"] for name, entry in stops_sent(sent, 2).items()} == {
        FOO0: False,
        FOO1: True,
        BAR1: True,
    }


@pytest.mark.scenario(328)
def test_each_broker_gets_its_own_stop() -> None:
    gathered = Gathered(SEED)

    gathered.stop([2, 3], "foo-0", "foo-1", delete=False)

    assert {
        broker: list(plain_stops(request)) for broker, request in of_kind(gathered.flush(), StopReplica).items()
    } == {
        2: [FOO0, FOO1],
        3: [FOO0, FOO1],
    }


@pytest.mark.scenario(329)
def test_only_registered_brokers_get_stops() -> None:
    gathered = Gathered(TWO_LEAVES_THREE_IS_GONE)

    gathered.stop([2, 3], "foo-0", delete=False)

    assert list(of_kind(gathered.flush(), StopReplica)) == [2]


@pytest.mark.scenario(332)
def test_stop_keeps_the_epoch_at_the_time_of_adding() -> None:
    gathered = Gathered(SEED)

    gathered.stop([2], "foo-0", delete=False)
    gathered.leadership("foo-0", led(1, 40, (1,), 8))
    gathered.stop([3], "foo-0", delete=False)
    sent = gathered.flush()

    assert stops_sent(sent, 2)[FOO0]["leader_epoch"] == 4
    assert stops_sent(sent, 3)[FOO0]["leader_epoch"] == 40


def test_stops_have_separate_epochs() -> None:
    gathered = Gathered(SEED)

    for name in reversed(ALL):
        gathered.stop([2], name, delete=False)
    sent = gathered.flush()

    assert {name: entry["leader_epoch"] for name, entry in stops_sent(sent, 2).items()} == {FOO0: 4, FOO1: 5, BAR1: 6}


# -- the whole batch ---------------------------------------------------------------------------------------------------

ADDITIONS: list[Callable[[Gathered], None]] = [
    lambda gathered: gathered.lead([2], "foo-0"),
    lambda gathered: gathered.stop([2], "foo-0", delete=False),
    lambda gathered: gathered.tell([2]),
]


@pytest.mark.scenario(330)
@pytest.mark.parametrize("add", ADDITIONS)
def test_new_batch_requires_an_empty_one(add: Callable[[Gathered], None]) -> None:
    gathered = Gathered(SEED)
    gathered.batch.begin()
    add(gathered)

    with pytest.raises(IllegalState, match="was started before the previous one was sent"):
        gathered.batch.begin()

    gathered.flush()
    gathered.batch.begin()
    add(gathered)
    gathered.batch.clear()
    gathered.batch.begin()
    assert gathered.flush() == []


@pytest.mark.scenario(333)
def test_requests_are_ordered_leader_metadata_stop() -> None:
    gathered = Gathered(SEED)

    gathered.stop([1, 3], "foo-0", delete=False)
    gathered.tell([2])
    gathered.lead([1, 2], "foo-0")
    sent = gathered.flush()

    assert [(type(each.request).__name__, each.broker) for each in sent] == [
        ("LeaderAndIsr", 1),
        ("LeaderAndIsr", 2),
        ("UpdateMetadata", 1),
        ("UpdateMetadata", 2),
        ("UpdateMetadata", 3),
        ("StopReplica", 1),
        ("StopReplica", 3),
    ]
    assert gathered.flush() == []


@pytest.mark.scenario(335)
def test_free_slots_are_not_sent_to() -> None:
    """Slots are marked here, not ids: a mark on a free slot would be broker -1."""
    gathered = Gathered(SEED)
    rows = rows_of(gathered.cluster, "bar-1")  # two replicas, so that the third slot is free
    marks = slots_of(rows, 2, -1)
    assert marks.sum() == 2

    gathered.batch.lead_and_follow(rows, marks)
    gathered.batch.stop(rows, marks, delete=False)
    gathered.batch.update_metadata([-1, 2])
    sent = gathered.flush()

    assert list(of_kind(sent, LeaderAndIsr)) == [2]
    assert list(of_kind(sent, StopReplica)) == [2]
    assert list(of_kind(sent, UpdateMetadata)) == [1, 2, 3]
    gathered.batch.update_metadata([-1])
    gathered.batch.begin()  # it left no state


def test_empty_additions_leave_the_batch_empty() -> None:
    gathered = Gathered(SEED)
    nothing = rows_of(gathered.cluster).take(np.zeros(3, np.bool_))

    gathered.batch.lead_and_follow(nothing, nothing.assigned)
    gathered.batch.stop(nothing, nothing.assigned, delete=True)

    assert gathered.flush() == []


def test_partitions_are_grouped_by_topic() -> None:
    names = [tp(f"{topic}-{number}") for number in range(40) for topic in ("b", "a", "c")]
    seed = ClusterSeed(
        live=frozenset({1, 2, 70_000}),
        partitions={name: PartitionSeed(replicas=(1, 2, 70_000), leadership=led(1, 1, (1, 2))) for name in names},
    )
    gathered, objects = Gathered(seed), seed.objects()
    expected = ObjectBatch(objects)

    for part in (names[::2], names[1::3], names[::-5]):
        gathered.lead([2, 70_000], *map(str, part))
        gathered.stop([1, 70_000], *map(str, part), delete=False)
        for name in part:
            expected.lead_and_follow([2, 70_000], objects.partitions[name], is_new=False)
            for broker in (1, 70_000):
                expected.stop(broker, objects.partitions[name], delete=False)
    sent = gathered.flush()

    assert list(map(plain_request, sent)) == list(map(plain_object_request, expected.flush()))


def test_expanded_topic_is_grouped_too() -> None:
    gathered = Gathered(SEED)
    gathered.cluster.put_assignment(tp("foo-2"), Assignment((2,)))
    gathered.leadership("foo-2", led(2, 3, (2,), 1))

    gathered.lead([2], *ALL, "foo-2")
    gathered.stop([2], *ALL, "foo-2", delete=True)
    sent = gathered.flush()

    for request in (of_kind(sent, LeaderAndIsr)[2].states, of_kind(sent, UpdateMetadata)[2].states):
        assert [ref.name for ref in request.topics] == ["foo", "bar"]
    assert [ref.name for ref in of_kind(sent, StopReplica)[2].topics] == ["foo", "bar"]
    leaders = {FOO0: 1, FOO1: 2, tp("foo-2"): 2, BAR1: 3}
    assert {name: entry["leader"] for name, entry in leaders_sent(sent, 2).items()} == leaders
    assert {name: entry["leader"] for name, entry in metadata_sent(sent, 2).items()} == leaders
    epochs = {FOO0: 4, FOO1: 5, tp("foo-2"): 3, BAR1: 6}
    assert {name: entry["leader_epoch"] for name, entry in stops_sent(sent, 2).items()} == epochs


def test_large_request_is_sent_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Gathered(SEED)
    whole.lead([2], *ALL)
    whole.stop([2], *ALL, delete=False)
    expected = whole.batch.flush()
    monkeypatch.setattr(request_columns, "PARTITIONS_OF_A_REQUEST_MAX", 2)
    parted = Gathered(SEED)
    parted.lead([2], *ALL)
    parted.stop([2], *ALL, delete=False)

    sent = [request for broker, request in parted.batch.flush() if broker == 2]

    assert [type(request) for request in sent] == [LeaderAndIsr] * 2 + [UpdateMetadata] * 2 + [StopReplica] * 2
    assert [_row_count(request) for request in sent] == [2, 1] * 3
    parts = [Addressed(2, request) for request in sent]
    (lead,) = [request for broker, request in expected if broker == 2 and isinstance(request, LeaderAndIsr)]
    said = [leaders_sent([part], 2) for part in parts[:2]]
    assert said[0] | said[1] == leaders_sent([Addressed(2, lead)], 2)


def _row_count(request: object) -> int:
    if isinstance(request, StopReplica):
        return len(request)
    assert isinstance(request, LeaderAndIsr | UpdateMetadata)
    return len(request.states)


# -- reasons -----------------------------------------------------------------------------------------------------------


def explained(*participants: int) -> Gathered:
    """Returns a batch with a reason for each strategy, of a cluster with some participants."""
    gathered = Gathered(SEED)
    brokers = gathered.cluster.brokers.values()
    gathered.cluster.add_brokers(
        [msgspec.structs.replace(broker, incarnation=b"x" * 16) for broker in brokers if broker.id in participants]
    )
    gathered.batch = RequestBatch(gathered.cluster, lambda strategy: OrderReason("BrokerChange", strategy, 7))
    return gathered


def add(gathered: Gathered, name: str, strategy: str, *, previous: int | None = None) -> None:
    rows = rows_of(gathered.cluster, name)
    before = None if previous is None else np.array([previous], np.int32)
    gathered.batch.lead_and_follow(rows, rows.assigned, previous=before, strategy=strategy)


def reasons_sent(gathered: Gathered, broker: int) -> dict[TopicPartition, tuple[str, int | None]]:
    """Returns the strategy and the previous leader that a broker receives for each partition."""
    request = of_kind(gathered.flush(), LeaderAndIsr)[broker]
    names = list(Names(request.states.topics, request.states.topic, request.states.partition))
    reasons = [request.reason_of(row) for row in range(len(names))]
    return {name: (reason.strategy, reason.previous) for name, reason in zip(names, reasons, strict=True)}


def test_rows_have_the_reason_with_which_they_were_added() -> None:
    gathered = explained(1, 2, 3)
    add(gathered, "foo-1", "offline", previous=2)
    add(gathered, "foo-0", "first")
    add(gathered, "bar-1", "offline", previous=NO_BROKER)

    sent = reasons_sent(gathered, 2)

    assert sent == {FOO0: ("first", None), FOO1: ("offline", 2), BAR1: ("offline", None)}


def test_newest_reason_of_a_row_counts() -> None:
    gathered = explained(1)
    add(gathered, "foo-0", "offline", previous=3)
    add(gathered, "foo-1", "offline", previous=3)
    add(gathered, "foo-0", "preferred", previous=2)

    sent = reasons_sent(gathered, 1)

    assert sent == {FOO0: ("preferred", 2), FOO1: ("offline", 3)}


def test_single_reason_needs_no_column() -> None:
    gathered = explained(1)
    add(gathered, "foo-0", "offline")
    add(gathered, "foo-1", "offline")

    request = of_kind(gathered.flush(), LeaderAndIsr)[1]

    assert [reason.strategy for reason in request.reasons] == ["offline"]
    assert request.states.reason is None


def test_clusters_without_participants_send_no_reasons() -> None:
    gathered = explained()
    add(gathered, "foo-0", "offline", previous=2)

    request = of_kind(gathered.flush(), LeaderAndIsr)[1]

    assert (request.reasons, request.states.reason, request.states.previous) == ((), None, None)
