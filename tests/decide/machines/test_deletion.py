"""Next steps of topics queued for deletion: by columns and by objects."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.decide.machines import deletion
from kactl.decide.state.deletion_blockers import BlockerReason, DeletionBlocker
from kactl.decide.state.rows import BrokerSet
from kactl.model import PartitionState, ReplicaState
from kactl.model.errors import ErrorCode
from tests.support.cluster_seeds import ClusterSeed, PartitionSeed, ids_of, rows_of, tp

S = ReplicaState
STATES = (S.ONLINE, S.OFFLINE, S.DELETION_STARTED, S.DELETION_SUCCESSFUL, S.DELETION_INELIGIBLE)
# A topic: the replica states of each partition.
Topic = list[list[ReplicaState]]


class Next(NamedTuple):
    complete: bool
    retry: bool
    start: bool


def columns(topics: list[Topic], halted: list[bool]) -> list[Next]:
    """Return the next steps by columns, all topics at once."""
    width = max((len(states) for topic in topics for states in topic), default=1)
    of = [number for number, topic in enumerate(topics) for _ in topic]
    states = np.full((width, len(of)), S.ABSENT, np.uint8)
    assigned = np.zeros((width, len(of)), np.bool_)
    for column, replicas in enumerate(states_ for topic in topics for states_ in topic):
        states[: len(replicas), column] = replicas
        assigned[: len(replicas), column] = True
    due = deletion.due(np.array(of, np.int32), assigned, states, halted=np.array(halted, np.bool_))
    return [Next(*map(bool, flags)) for flags in zip(due.complete, due.retry, due.start, strict=True)]


def objects(topic: Topic, halted: bool) -> Next:
    """Return the next step by objects, for one topic, in the order of the classic controller."""
    states = [state for replicas in topic for state in replicas]
    complete = all(state is S.DELETION_SUCCESSFUL for state in states)
    begun = any(state is S.DELETION_STARTED for state in states)
    retry = not complete and not begun and any(state is S.DELETION_INELIGIBLE for state in states)
    return Next(complete, retry, not complete and not begun and not halted)


topics = st.lists(st.lists(st.lists(st.sampled_from(STATES), max_size=4), max_size=4), max_size=5)


@given(topics, st.data())
def test_columns_and_objects_agree(waiting: list[Topic], data: st.DataObject) -> None:
    halted = data.draw(st.lists(st.booleans(), min_size=len(waiting), max_size=len(waiting)))

    assert columns(waiting, halted) == [
        objects(*topic_and_halted) for topic_and_halted in zip(waiting, halted, strict=True)
    ]


@pytest.mark.parametrize(
    ("topic", "halted", "expected"),
    [
        ([], True, Next(complete=True, retry=False, start=False)),
        ([[]], False, Next(complete=True, retry=False, start=False)),
        ([[S.ONLINE, S.OFFLINE]], False, Next(complete=False, retry=False, start=True)),
        ([[S.ONLINE, S.OFFLINE]], True, Next(complete=False, retry=False, start=False)),
        ([[S.DELETION_SUCCESSFUL], [S.DELETION_SUCCESSFUL]], True, Next(complete=True, retry=False, start=False)),
        ([[S.DELETION_INELIGIBLE], [S.DELETION_STARTED]], False, Next(complete=False, retry=False, start=False)),
        ([[S.DELETION_INELIGIBLE, S.DELETION_SUCCESSFUL]], True, Next(complete=False, retry=True, start=False)),
        ([[S.DELETION_INELIGIBLE, S.DELETION_SUCCESSFUL]], False, Next(complete=False, retry=True, start=True)),
    ],
)
def test_next_step_of_a_deletion(topic: Topic, halted: bool, expected: Next) -> None:
    assert columns([topic], [halted]) == [expected]


def seed(**more: object) -> ClusterSeed:
    partition = PartitionSeed(
        replicas=(1, 2, 3),
        state=PartitionState.ABSENT,
        states={1: S.DELETION_SUCCESSFUL, 2: S.DELETION_STARTED, 3: S.OFFLINE},
        dirs_offline=(2,),
    )
    partitions = {tp("t-0"): partition, tp("u-0"): partition}
    return ClusterSeed(live=frozenset({1, 2}), partitions=partitions, topic_ids=ids_of(["t", "u"]), **more)  # type: ignore[arg-type]


def test_replica_is_dead_if_its_broker_or_directory_is() -> None:
    cluster = seed().columns()
    rows = rows_of(cluster, "t-0")

    assert rows.replicas[:, 0][deletion.dead(rows, cluster.live_brokers.live)[:, 0]].tolist() == [2, 3]
    assert not deletion.to_delete(rows, cluster.live_brokers.live).any()
    everybody = BrokerSet({1, 2, 3})
    assert rows.replicas[:, 0][deletion.to_delete(rows, everybody)[:, 0]].tolist() == [3]


def test_deletion_progress() -> None:
    cluster = seed(queued=frozenset({"t", "u"}), started=frozenset({"t"})).columns()
    cluster.queue_deletion(["gone"])
    halt = DeletionBlocker(BlockerReason.OFFLINE_REPLICAS, (3,), (0,))
    cluster.block_deletion("u", halt)

    assert deletion.waiting(cluster) == [
        deletion.Waiting("gone", False, 0, 0, ()),
        deletion.Waiting("t", True, 3, 2, ()),
        deletion.Waiting("u", False, 3, 2, (halt,)),
    ]


@pytest.mark.parametrize(
    ("halt", "text", "remedy"),
    [
        (
            DeletionBlocker(BlockerReason.REASSIGNMENT, (), (4, 7)),
            "partitions 4, 7 are being reassigned",
            "wait until the brokers that are being added are in sync",
        ),
        (DeletionBlocker(BlockerReason.REASSIGNMENT), "partitions are being reassigned", "wait until the"),
        (
            DeletionBlocker(BlockerReason.OFFLINE_REPLICAS, (2,), (0,)),
            "replicas of partition 0 on broker 2 are offline",
            "start br",
        ),
        (
            DeletionBlocker(BlockerReason.REPLICA_FAILED, (2, 3), tuple(range(12))),
            "brokers 2, 3 failed during the deletion of replicas of partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more",
            "start brokers 2, 3",
        ),
        (
            DeletionBlocker(BlockerReason.REPLICA_FAILED, (2,), (1,), ErrorCode.KAFKA_STORAGE_ERROR),
            "broker 2 failed to delete replicas of partition 1: KAFKA_STORAGE_ERROR (56)",
            "read the log of broker 2",
        ),
        (
            DeletionBlocker(BlockerReason.REPLICA_FAILED, (2,), (1,), 999),
            "an unknown error (999)",
            "read the log",
        ),
    ],
)
def test_blocker_states_reason_and_remedy(halt: DeletionBlocker, text: str, remedy: str) -> None:
    assert text in halt.text
    assert remedy in halt.remedy()


def test_remedy_for_a_broker_shutting_down_is_not_to_start_it() -> None:
    halt = DeletionBlocker(BlockerReason.OFFLINE_REPLICAS, (2, 3), (0,))

    remedy = halt.remedy(shutting_down={2})

    assert remedy.startswith("broker 2 is shutting down: restart it, or kactl broker drain --undo 2; start broker 3;")
