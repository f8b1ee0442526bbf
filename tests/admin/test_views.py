"""Pages of partitions compared with a filter over objects, page cursors, and errors as problem documents."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kactl.admin import cursor, problem
from kactl.admin import views as views_module
from kactl.admin.problem import Refused
from kactl.admin.schema import PartitionQuery, ProblemController
from kactl.admin.tallies import shares
from kactl.admin.views import find_partition, find_partitions
from kactl.decide.messages.log import PARTITION_STATE_NAMES
from kactl.decide.state.cluster import Cluster
from kactl.model import NO_LEADER, Assignment, Leadership, PartitionState, PartitionView, TopicPartition
from kactl.model.errors import ControllerMoved, InvalidReplicaAssignment, NotController, StoreUnavailable, TopicExists
from kactl.stores.base import Assignments, Leaderships
from tests.support.cluster_strategies import Decisions

TOPICS = ("b", "a", "b-1", "ab", "c")
BROKERS = range(1, 5)
MIN_ISR = 2  # of every topic


# At least as many bytes as there are decisions.
CLUSTER_BYTES = 512


def arbitrary_cluster(content: bytes) -> Cluster:
    """Returns a cluster with arbitrary states, including impossible ones, which readers must support."""
    decide = Decisions(content)
    cluster = Cluster(0)
    for topic in decide.shuffled(TOPICS):
        for partition in decide.sample(range(7), size_max=4):
            name = TopicPartition(topic, partition)
            replicas = decide.sample(BROKERS, size_max=3) or [1]
            at = cluster.put_assignments(Assignments.of({name: Assignment(tuple(replicas))}))
            if decide.flag():
                isr = tuple(decide.sample(replicas))
                leadership = Leadership(decide.pick((*replicas, NO_LEADER)), 3, isr, 2, 1)
                cluster.put_leaderships(at, Leaderships.of([leadership]))
            cluster.set_states(at, decide.pick(list(PartitionState)[:3]))
    for topic in decide.sample(TOPICS, size_max=2):
        cluster.remove_topic(topic)
    for topic in decide.sample(TOPICS, size_max=1):
        cluster.queue_deletion([topic])
        if decide.flag():
            cluster.begin_deletion([topic])
    return cluster


arbitrary_clusters = st.binary(min_size=CLUSTER_BYTES, max_size=CLUSTER_BYTES).map(arbitrary_cluster)
queries = st.builds(
    PartitionQuery,
    state=st.lists(st.sampled_from(["new", "online", "offline"]), max_size=2),
    leader=st.none() | st.integers(-1, 4),
    replica=st.none() | st.integers(1, 4),
    topic=st.lists(st.sampled_from([*TOPICS, "a*", "?", "*"]), max_size=2),
    offline=st.none() | st.booleans(),
    urp=st.none() | st.booleans(),
    under_min_isr=st.none() | st.booleans(),
    limit=st.integers(1, 5),
)


def views(cluster: Cluster) -> list[PartitionView]:
    table = cluster.table
    return sorted((table.view(int(row)) for row in table.all()), key=lambda view: view.name)


def wanted(cluster: Cluster, query: PartitionQuery, view: PartitionView) -> bool:
    """Returns whether one object matches the query."""
    fits = {"a*": view.topic.startswith("a"), "?": len(view.topic) == 1, "*": True}
    offline = view.state is PartitionState.OFFLINE and view.topic not in cluster.deletion_started
    lagging = view.leader_epoch >= 0 and not set(view.replicas) <= set(view.isr)
    known = view.leader_epoch >= 0 and view.topic not in cluster.topics_to_delete
    under = known and (view.leader < 0 or len(view.isr) < min(MIN_ISR, len(view.replicas)))
    return (
        (not query.state or PARTITION_STATE_NAMES[view.state] in query.state)
        and query.leader in (None, view.leader)
        and (query.replica is None or query.replica in view.replicas)
        and (not query.topic or any(fits.get(item, view.topic == item) for item in query.topic))
        and query.offline in (None, offline)
        and query.urp in (None, lagging and view.topic not in cluster.topics_to_delete)
        and query.under_min_isr in (None, under)
    )


@pytest.mark.anyio
@pytest.mark.parametrize("whole", [0, 5, views_module._SORTED_WHOLE_MAX])
@given(cluster=arbitrary_clusters, query=queries)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_pages_equal_a_filter_over_objects(
    cluster: Cluster, query: PartitionQuery, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views_module, "_SORTED_WHOLE_MAX", whole)
    expected = [view for view in views(cluster) if wanted(cluster, query, view)]
    seen: list[Any] = []
    place = None

    for _ in range(len(expected) + 1):
        min_isr = np.full(len(cluster.table.refs) + 1, MIN_ISR, np.int32)
        selection = find_partitions(cluster, PartitionQuery(**{**_fields(query), "cursor": place}), min_isr)
        page = await selection.infos()
        assert len(page) <= query.limit
        assert selection.matched == len(expected)
        seen += page
        if (place := selection.next_cursor) is None:
            break

    assert [(info.topic, info.partition) for info in seen] == [(view.topic, view.partition) for view in expected]
    for info, view in zip(seen, expected, strict=True):
        assert (info.leader, info.leader_epoch, info.isr) == (view.leader, view.leader_epoch, view.isr)
        assert (info.replicas, info.adding, info.removing) == (view.replicas, view.adding, view.removing)
        assert info.state == PARTITION_STATE_NAMES[view.state]
        assert info.replica_states.keys() == view.replica_states.keys()
        assert info.min_insync_replicas == MIN_ISR
        assert info == find_partition(cluster, view.topic, view.partition, min_isr)


def _fields(query: PartitionQuery) -> dict[str, Any]:
    return {name: getattr(query, name) for name in query.__struct_fields__}


@given(cluster=arbitrary_clusters)
def test_broker_counts_equal_a_count_over_objects(cluster: Cluster) -> None:
    held = shares(cluster.table)

    for broker in range(1, 5):
        mine = [view for view in views(cluster) if broker in view.replicas]
        assert held.replicas.get(broker, 0) == len(mine)
        assert held.leaders.get(broker, 0) == sum(view.leader == broker for view in views(cluster))
        lagging = sum(view.leader_epoch >= 0 and broker not in view.isr for view in mine)
        assert held.out_of_sync.get(broker, 0) == lagging


def test_brokers_with_very_large_ids_are_counted() -> None:
    cluster = Cluster(0)
    cluster.put_assignments(Assignments.of({TopicPartition("a", 0): Assignment((2_000_000_000, 1))}))

    assert shares(cluster.table).replicas == {1: 1, 2_000_000_000: 1}


def test_columns_are_read_only_for_readers() -> None:
    cluster = Cluster(0)
    cluster.put_assignments(Assignments.of({TopicPartition("a", 0): Assignment((1,))}))

    with pytest.raises(ValueError, match="read-only"):
        cluster.table.column("leader")[0] = 7

    cluster.table.set_states(np.array([0]), PartitionState.OFFLINE)  # the owner can still write


@given(st.text(max_size=250), st.integers(0, 2**31 - 1))
def test_cursor_round_trip(topic: str, partition: int) -> None:
    assert cursor.read(cursor.write(topic, partition)) == (topic, partition)


@given(st.text(max_size=30))
def test_invalid_cursor_is_rejected(text: str) -> None:
    try:
        position = cursor.read(text)
    except Refused as refused:
        position = None
        parameter = refused.errors[0].parameter
    else:
        parameter = "cursor"

    assert parameter == "cursor"
    assert position is None or isinstance(position[1], int)


@pytest.mark.parametrize(
    ("path", "pointer"),
    [
        ("", ""),
        ("name", "/name"),
        (".name", "/name"),
        ("assignment.0", "/assignment/0"),
        (".partitions[3].topic", "/partitions/3/topic"),
        (".config[...]", "/config"),
        ("a/b", "/a~1b"),
        ("a~b", "/a~0b"),
    ],
)
def test_path_is_written_as_a_json_pointer(path: str, pointer: str) -> None:
    assert problem.pointer(path) == pointer


@pytest.mark.parametrize(
    ("error", "status", "name", "retriable", "pointers"),
    [
        (TopicExists("a"), 409, "TOPIC_ALREADY_EXISTS", False, []),
        (InvalidReplicaAssignment("assignment.1", "no"), 400, "INVALID_REPLICA_ASSIGNMENT", False, ["/assignment/1"]),
        (NotController(3), 503, "NOT_CONTROLLER", True, []),
        (ControllerMoved(ours=1, theirs=2), 409, "STALE_CONTROLLER_EPOCH", True, []),
        # The outcome is unknown, so a blind retry could be wrong.
        (StoreUnavailable("gone"), 503, "UNKNOWN_SERVER_ERROR", False, []),
        (RuntimeError("secret"), 500, "UNKNOWN_SERVER_ERROR", False, []),
    ],
)
def test_errors_become_problem_documents(
    error: Exception, status: int, name: str, retriable: bool, pointers: list[str]
) -> None:
    document, headers = problem.of(error, instance="/v1/x", controller=ProblemController(id=3, epoch=0))

    assert (document.status, document.error_name, document.retriable, document.instance) == (
        status,
        name,
        retriable,
        "/v1/x",
    )
    assert [item.pointer for item in document.errors] == pointers
    assert ("Retry-After" in headers) == (status == 503 and retriable)
    assert "secret" not in document.detail
