"""Requests that change topics, replicas, brokers and the controller."""

import asyncio
from typing import Any

import pytest

from kactl.admin.schema import (
    BrokerDrained,
    ControllerInfo,
    PartitionExplanation,
    PlanAnswer,
    QueueInfo,
    ReassignmentAnswer,
    ReassignmentList,
    Resigned,
    TermList,
    TopicChanged,
    TopicDeleted,
    TopicExplanation,
)
from tests.admin.conftest import Served, served
from tests.support.clocks import settle

pytestmark = pytest.mark.anyio


def current_leaders(server: Served, topic: str) -> list[int]:
    return [view.leader for view in server.controller.partitions_of(topic)]


# -- topics ------------------------------------------------------------------------------------------------------------


async def test_added_partitions_have_leaders(server: Served) -> None:
    answer = await server.ask("PATCH", "/v1/topics/orders", json={"partitions": 5, "assignment": [[2, 3, 1]]})

    assert answer.status == 200
    assert answer.read(TopicChanged) == TopicChanged(name="orders", partitions=5, config=None, dry_run=False)
    assert [view.replicas for view in server.controller.partitions_of("orders")][4:] == [(2, 3, 1)]
    assert -1 not in current_leaders(server, "orders")


async def test_topic_name_that_collides_in_metrics_is_rejected(server: Served) -> None:
    assert (await server.post("/v1/topics", {"name": "a.b_c"})).status == 201

    answer = await server.post("/v1/topics", {"name": "a_b.c"})

    assert (answer.status, answer.json()["error_name"]) == (400, "INVALID_TOPIC_EXCEPTION")
    assert "'a_b.c' and the topic 'a.b_c' have the same metrics" in answer.json()["detail"]
    assert (await server.post("/v1/topics", {"name": "a-b-c"})).status == 201
    assert (await server.post("/v1/topics", {"name": "a.b.d"})).status == 201


async def test_topic_without_counts_has_those_of_the_configuration() -> None:
    async with served(settings={"kafka.num-partitions": 3, "kafka.default-replication-factor": 2}) as server:
        assert (await server.post("/v1/topics", {"name": "plain"})).status == 201

        assert [len(view.replicas) for view in server.controller.partitions_of("plain")] == [2, 2, 2]


@pytest.mark.parametrize("partitions", [4, 50_001])
async def test_invalid_partition_addition_names_its_field(server: Served, partitions: int) -> None:
    answer = await server.ask("PATCH", "/v1/topics/orders", json={"partitions": partitions})

    assert answer.status == 400
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/partitions"]


async def test_overrides_are_set_and_removed_individually(server: Served) -> None:
    await server.ask("PATCH", "/v1/topics/orders", json={"config": {"retention.ms": "5", "segment.ms": "7"}})

    answer = await server.ask("PATCH", "/v1/topics/orders", json={"config": {"retention.ms": None, "a.b": "c"}})

    assert answer.read(TopicChanged).config == {"segment.ms": "7", "a.b": "c"}
    assert (await server.controller.store.topic_configs(["orders"]))["orders"] == {"segment.ms": "7", "a.b": "c"}


async def test_concurrent_changes_of_overrides_are_all_applied(server: Served) -> None:
    many: list[dict[str, Any]] = [{"config": {f"k{number}": "v"}} for number in range(10)]
    many[0]["partitions"] = 6  # it waits for leaders, so that other requests are faster

    answers = await asyncio.gather(*(server.ask("PATCH", "/v1/topics/orders", json=item) for item in many))

    assert [answer.status for answer in answers] == [200] * 10
    overrides = (await server.controller.store.topic_configs(["orders"]))["orders"]
    assert overrides == {f"k{number}": "v" for number in range(10)}


async def test_topic_is_deleted(server: Served) -> None:
    answer = await server.ask("DELETE", "/v1/topics/orders", params={"reason": "done"})

    assert answer.status == 200
    assert answer.read(TopicDeleted).gone
    assert await server.controller.store.topics() == []
    assert await server.controller.store.deletions() == []
    assert server.participants is not None
    assert (await server.get("/v1/topics/orders")).status == 404


async def test_halted_deletion_names_the_broker(server: Served) -> None:
    assert server.participants is not None
    await server.participants.kill(3)
    await server.clock.advance(30_000)  # its registration expires
    await settle()

    answer = await server.ask("DELETE", "/v1/topics/orders", params={"timeout_ms": "0", "reason": "to see"})
    await settle()

    assert answer.status == 202
    assert not answer.read(TopicDeleted).gone
    response = (await server.get("/v1/topics/orders/explanation")).read(TopicExplanation)
    assert response.deletion == "halted"
    assert len(response.waits_for) == 1
    assert response.waits_for[0].endswith(
        "on broker 3 are offline: start broker 3; a broker that is running has a failed log directory: repair it and"
        " restart the broker"
    )
    again = await server.ask("DELETE", "/v1/topics/orders?reason=again")
    assert (again.status, again.json()["error_name"]) == (409, "INVALID_TOPIC_EXCEPTION")


REFUSED = {
    "a topic that is not there": ("PATCH", "/v1/topics/no", {"partitions": 9}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
    "fewer partitions": ("PATCH", "/v1/topics/orders", {"partitions": 1}, 400, "INVALID_PARTITIONS"),
    "replicas nowhere": (
        "PATCH", "/v1/topics/orders", {"partitions": 5, "assignment": [[9]]}, 400, "INVALID_REPLICA_ASSIGNMENT",
    ),
    "replicas for nothing": ("PATCH", "/v1/topics/orders", {"assignment": [[1]]}, 400, "INVALID_REQUEST"),
    "no change": ("PATCH", "/v1/topics/orders", {}, 400, "INVALID_REQUEST"),
    "an override that cannot be": (
        "PATCH", "/v1/topics/orders", {"config": {"unclean.leader.election.enable": "maybe"}}, 400, "INVALID_CONFIG",
    ),
    "deleting what is not there": ("DELETE", "/v1/topics/no?reason=old", None, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
    "a plan onto nobody": ("POST", "/v1/reassignment-plans", {"brokers": [9]}, 400, "INVALID_REQUEST"),
    "a plan without anybody": (
        "POST", "/v1/reassignment-plans", {"without": [1, 2, 3]}, 400, "INVALID_REPLICA_ASSIGNMENT",
    ),
    "a plan of no topic": ("POST", "/v1/reassignment-plans", {"topics": ["no"]}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
    "a partition twice": (
        "POST", "/v1/reassignments", {"partitions": [{"topic": "orders", "partition": 0}] * 2}, 400, "INVALID_REQUEST",
    ),
    "draining nobody": ("POST", "/v1/brokers/9/drain", {}, 404, "BROKER_NOT_AVAILABLE"),
    "a stale epoch": (
        "POST", "/v1/controller/resign", {"expected_epoch": 7, "reason": "a"}, 412, "STALE_CONTROLLER_EPOCH",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "status", "name"), REFUSED.values(), ids=REFUSED.keys())
async def test_invalid_change_is_rejected_without_effect(
    shared: Served, method: str, path: str, body: object, status: int, name: str
) -> None:
    before = await shared.state()

    answer = await shared.ask(method, path, **({} if body is None else {"json": body}))

    assert (answer.status, answer.json()["error_name"]) == (status, name)
    assert await shared.state() == before


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/v1/topics/orders", {"partitions": 9, "dry_run": True}),
        ("PATCH", "/v1/topics/orders", {"config": {"a": "b"}, "dry_run": True}),
        ("DELETE", "/v1/topics/orders?dry_run=true", None),
        ("POST", "/v1/brokers/1/drain", {"dry_run": True}),
        ("POST", "/v1/reassignment-plans", {"brokers": [1, 2], "replication_factor": 2}),
        (
            "POST",
            "/v1/reassignments",
            {"partitions": [{"topic": "orders", "partition": 0, "replicas": [3]}], "dry_run": True},
        ),
    ],
)
async def test_dry_run_changes_nothing(shared: Served, method: str, path: str, body: object) -> None:
    before = await shared.state()

    answer = await shared.ask(method, path, **({} if body is None else {"json": body}))

    assert answer.status == 200, answer.body
    await settle()
    assert await shared.state() == before


# -- replicas ----------------------------------------------------------------------------------------------------------


async def test_plan_without_a_broker_is_applied(server: Served) -> None:
    await server.controller.create_topic("bills", assignment={0: [1, 2], 1: [2, 3], 2: [3, 1]})
    asked = {"topics": ["bills"], "without": [1]}
    planned = (await server.post("/v1/reassignment-plans", asked)).read(PlanAnswer)
    moves = [(item.partition, item.current, item.replicas) for item in planned.items]
    assert moves == [(0, (1, 2), (3, 2)), (2, (3, 1), (3, 2))]
    assert (planned.unchanged, planned.moved) == (1, 2)

    targets = [
        {"topic": item.topic, "partition": item.partition, "replicas": list(item.replicas)} for item in planned.items
    ]
    begun = (await server.post("/v1/reassignments", {"partitions": targets})).read(ReassignmentAnswer)
    await settle()

    assert [item.outcome for item in begun.results] == ["ok", "ok"]
    views = server.controller.partitions_of("bills")
    assert [(view.replicas, view.adding, view.removing) for view in views] == [
        ((3, 2), (), ()),
        ((2, 3), (), ()),
        ((3, 2), (), ()),
    ]
    listed = (await server.get("/v1/reassignments")).read(ReassignmentList)
    assert listed.items == ()
    assert listed.completed == len(listed.last_completed) == 2
    again = (await server.post("/v1/reassignment-plans", asked)).read(PlanAnswer)
    assert again.items == ()
    assert [item.replicas for item in again.loads] == [item.replicas_planned for item in planned.loads]


async def test_waiting_reassignment_is_listed_and_cancelled(server: Served) -> None:
    assert server.participants is not None
    await server.controller.create_topic("bills", assignment={0: [1, 2]})
    await server.participants.kill(3)  # the controller has not received the change yet
    target = {"topic": "bills", "partition": 0, "replicas": [3, 2]}
    await server.post("/v1/reassignments", {"partitions": [target]})
    await settle()

    (moving,) = (await server.get("/v1/reassignments")).read(ReassignmentList).items
    assert (moving.replicas, moving.adding, moving.removing) == ((3, 2, 1), (3,), (1,))
    assert moving.waits_for == "leader 1 has not yet added broker 3 to the ISR"
    explained = (await server.get("/v1/topics/bills/partitions/0/explanation")).read(PartitionExplanation)
    assert explained.reassignment == moving.waits_for
    await server.clock.advance(30_000)  # its registration expires
    (moving,) = (await server.get("/v1/reassignments")).read(ReassignmentList).items
    assert moving.waits_for == "broker 3 cannot serve: start it, or choose another target"

    cancelled = await server.ask("DELETE", "/v1/reassignments/bills/0")
    await settle()

    assert [item.outcome for item in cancelled.read(ReassignmentAnswer).results] == ["ok"]
    (view,) = server.controller.partitions_of("bills")
    assert (set(view.replicas), view.adding, view.removing, view.leader) == ({1, 2}, (), (), 1)
    again = (await server.ask("DELETE", "/v1/reassignments/bills/0")).read(ReassignmentAnswer)
    assert [item.error_name for item in again.results] == ["NO_REASSIGNMENT_IN_PROGRESS"]


# -- brokers and the controllership ------------------------------------------------------------------------------------


async def test_broker_is_drained_and_undrained(server: Served) -> None:
    drained = (await server.post("/v1/brokers/1/drain", {"reason": "a new disk"})).read(BrokerDrained)
    await settle()

    assert drained.remaining == ()
    assert 1 not in current_leaders(server, "orders")
    assert (await server.get("/v1/brokers/1")).json()["state"] == "drained"

    overrides = await server.post("/v1/brokers/1/drain", {"undo": True})

    assert overrides.status == 200
    assert (await server.get("/v1/brokers/1")).json()["state"] == "live"


async def test_drain_states_its_effect_in_advance_and_afterwards(server: Served) -> None:
    await server.controller.create_topic("pair", assignment={0: (1, 2)}, config={"min.insync.replicas": "2"})
    await settle()

    tried = (await server.post("/v1/brokers/1/drain", {"dry_run": True})).read(BrokerDrained)
    assert server.controller.cluster.shutting_down == frozenset()
    drained = (await server.post("/v1/brokers/1/drain")).read(BrokerDrained)
    await settle()
    undone = (await server.post("/v1/brokers/1/drain", {"undo": True})).read(BrokerDrained)

    assert tried.effect == drained.effect is not None
    assert drained.effect.left_isr.count == 5
    assert [item.topic for item in drained.effect.under_min_isr.first] == ["pair"]
    assert drained.effect.last_in_sync == drained.effect.under_min_isr
    assert undone.effect is None


async def test_resignation_and_reelection_are_in_the_history(server: Served) -> None:
    epoch = server.controller.cluster.fence.epoch

    answer = await server.post("/v1/controller/resign", {"expected_epoch": epoch, "reason": "to see"})
    await settle()

    assert answer.read(Resigned).epoch == epoch
    info = (await server.get("/v1/controller")).read(ControllerInfo)
    assert (info.is_active, info.epoch) == (True, epoch + 1)
    terms = (await server.get("/v1/controller/history")).read(TermList).items
    assert [(item.epoch, item.cause, item.ended_ms is None) for item in terms] == [
        (epoch, "asked to resign", False),
        (epoch + 1, "", True),
    ]


async def test_queue_has_the_handled_events(server: Served) -> None:
    await server.post("/v1/elections", {"type": "preferred", "all": True})

    response = (await server.get("/v1/controller/queue")).read(QueueInfo)

    assert (response.depth, response.current, response.next) == (0, None, ())
    statistics = {item.label: item for item in response.kinds}
    assert (statistics["ReplicaLeaderElection"].handled, statistics["ReplicaLeaderElection"].failed) == (1, 0)
    assert statistics["ReplicaLeaderElection"].process.count == 1


UNEXPLAINED: dict[str, tuple[str, str, Any]] = {
    "deletion": ("DELETE", "/v1/topics/orders", None),
    "deletion for a blank reason": ("DELETE", "/v1/topics/orders?reason=%20", None),
    "unclean election": ("POST", "/v1/elections", {"type": "unclean", "all": True}),
    "resignation": ("POST", "/v1/controller/resign", {"expected_epoch": 1}),
    "kill": ("POST", "/v1/brokers/1/kill", {}),
    "kill for a blank reason": ("POST", "/v1/brokers/1/kill", {"reason": "  "}),
}


@pytest.mark.parametrize(("method", "path", "body"), UNEXPLAINED.values(), ids=UNEXPLAINED.keys())
async def test_what_cannot_be_undone_needs_a_reason(shared: Served, method: str, path: str, body: Any) -> None:
    before = await shared.state()

    answer = await shared.ask(method, path, **({} if body is None else {"json": body}))

    assert (answer.status, "say why" in answer.json()["detail"]) == (400, True)
    assert await shared.state() == before


async def test_preview_needs_no_reason(shared: Served) -> None:
    assert (await shared.ask("DELETE", "/v1/topics/orders?dry_run=true")).status == 200
    unclean = await shared.post("/v1/elections", {"type": "unclean", "all": True, "dry_run": True})
    assert unclean.status == 200
