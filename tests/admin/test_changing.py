"""What changes a cluster that is there: topics that grow and go, replicas that move, brokers that are drained."""

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


def leaders(server: Served, topic: str) -> list[int]:
    return [view.leader for view in server.controller.partitions_of(topic)]


# -- topics ------------------------------------------------------------------------------------------------------------


async def test_a_topic_grows_and_the_new_partitions_are_led(server: Served) -> None:
    answer = await server.ask("PATCH", "/v1/topics/orders", json={"partitions": 5, "assignment": [[2, 3, 1]]})

    assert answer.status == 200
    assert answer.read(TopicChanged) == TopicChanged(name="orders", partitions=5, config=None, dry_run=False)
    assert [view.replicas for view in server.controller.partitions_of("orders")][4:] == [(2, 3, 1)]
    assert -1 not in leaders(server, "orders")


async def test_names_that_metrics_cannot_tell_apart_are_not_given_to_two_topics(server: Served) -> None:
    assert (await server.post("/v1/topics", {"name": "a.b_c"})).status == 201

    answer = await server.post("/v1/topics", {"name": "a_b.c"})

    assert (answer.status, answer.json()["error_name"]) == (400, "INVALID_TOPIC_EXCEPTION")
    assert "'a_b.c' and the topic 'a.b_c' have the same metrics" in answer.json()["detail"]
    assert (await server.post("/v1/topics", {"name": "a-b-c"})).status == 201
    assert (await server.post("/v1/topics", {"name": "a.b.d"})).status == 201


async def test_a_topic_without_counts_gets_those_of_the_configuration() -> None:
    async with served(settings={"kafka.num-partitions": 3, "kafka.default-replication-factor": 2}) as server:
        assert (await server.post("/v1/topics", {"name": "plain"})).status == 201

        assert [len(view.replicas) for view in server.controller.partitions_of("plain")] == [2, 2, 2]


@pytest.mark.parametrize("partitions", [4, 50_001])
async def test_a_growth_that_cannot_be_names_the_field_that_was_sent(server: Served, partitions: int) -> None:
    answer = await server.ask("PATCH", "/v1/topics/orders", json={"partitions": partitions})

    assert answer.status == 400
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/partitions"]


async def test_overrides_are_set_and_taken_away_and_others_stay(server: Served) -> None:
    await server.ask("PATCH", "/v1/topics/orders", json={"config": {"retention.ms": "5", "segment.ms": "7"}})

    answer = await server.ask("PATCH", "/v1/topics/orders", json={"config": {"retention.ms": None, "a.b": "c"}})

    assert answer.read(TopicChanged).config == {"segment.ms": "7", "a.b": "c"}
    assert (await server.controller.store.topic_configs(["orders"]))["orders"] == {"segment.ms": "7", "a.b": "c"}


async def test_overrides_that_are_set_at_the_same_time_all_stay(server: Served) -> None:
    many: list[dict[str, Any]] = [{"config": {f"k{number}": "v"}} for number in range(10)]
    many[0]["partitions"] = 6  # it waits for leaders, and others are quicker

    answers = await asyncio.gather(*(server.ask("PATCH", "/v1/topics/orders", json=each) for each in many))

    assert [answer.status for answer in answers] == [200] * 10
    kept = (await server.controller.store.topic_configs(["orders"]))["orders"]
    assert kept == {f"k{number}": "v" for number in range(10)}


async def test_a_topic_is_deleted_with_all_that_is_in_it(server: Served) -> None:
    answer = await server.ask("DELETE", "/v1/topics/orders", params={"reason": "done"})

    assert answer.status == 200
    assert answer.read(TopicDeleted).gone
    assert await server.controller.store.topics() == []
    assert await server.controller.store.deletions() == []
    assert server.participants is not None
    assert (await server.get("/v1/topics/orders")).status == 404


async def test_a_deletion_that_waits_for_a_broker_says_for_which(server: Served) -> None:
    assert server.participants is not None
    await server.participants.kill(3)
    await server.clock.advance(30_000)  # its registration expires
    await settle()

    answer = await server.ask("DELETE", "/v1/topics/orders", params={"timeout_ms": "0"})
    await settle()

    assert answer.status == 202
    assert not answer.read(TopicDeleted).gone
    found = (await server.get("/v1/topics/orders/explanation")).read(TopicExplanation)
    assert found.deletion == "halted"
    assert len(found.waits_for) == 1
    assert found.waits_for[0].endswith("on broker 3 are offline: start broker 3; a broker that is running has a failed"
                                       " log directory: repair it and restart the broker")  # fmt: skip
    again = await server.ask("DELETE", "/v1/topics/orders")
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
    "deleting what is not there": ("DELETE", "/v1/topics/no", None, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
    "a plan onto nobody": ("POST", "/v1/reassignment-plans", {"brokers": [9]}, 400, "INVALID_REQUEST"),
    "a plan without anybody": (
        "POST", "/v1/reassignment-plans", {"without": [1, 2, 3]}, 400, "INVALID_REPLICA_ASSIGNMENT",
    ),
    "a plan of no topic": ("POST", "/v1/reassignment-plans", {"topics": ["no"]}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
    "a partition twice": (
        "POST", "/v1/reassignments", {"partitions": [{"topic": "orders", "partition": 0}] * 2}, 400, "INVALID_REQUEST",
    ),
    "draining nobody": ("POST", "/v1/brokers/9/drain", {}, 404, "BROKER_NOT_AVAILABLE"),
    "a stale epoch": ("POST", "/v1/controller/resign", {"expected_epoch": 7}, 412, "STALE_CONTROLLER_EPOCH"),
}  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "status", "name"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_cannot_be_is_refused_and_nothing_changes(
    server: Served, method: str, path: str, body: object, status: int, name: str
) -> None:
    before = await server.state()

    answer = await server.ask(method, path, **({} if body is None else {"json": body}))

    assert (answer.status, answer.json()["error_name"]) == (status, name)
    assert await server.state() == before


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
async def test_what_is_only_tried_changes_nothing(server: Served, method: str, path: str, body: object) -> None:
    before = await server.state()

    answer = await server.ask(method, path, **({} if body is None else {"json": body}))

    assert answer.status == 200, answer.body
    await settle()
    assert await server.state() == before


# -- replicas ----------------------------------------------------------------------------------------------------------


async def test_a_plan_that_empties_a_broker_is_carried_out(server: Served) -> None:
    await server.controller.create_topic("bills", assignment={0: [1, 2], 1: [2, 3], 2: [3, 1]})
    asked = {"topics": ["bills"], "without": [1]}
    planned = (await server.post("/v1/reassignment-plans", asked)).read(PlanAnswer)
    moves = [(each.partition, each.current, each.replicas) for each in planned.items]
    assert moves == [(0, (1, 2), (3, 2)), (2, (3, 1), (3, 2))]
    assert (planned.unchanged, planned.moved) == (1, 2)

    targets = [
        {"topic": each.topic, "partition": each.partition, "replicas": list(each.replicas)} for each in planned.items
    ]
    begun = (await server.post("/v1/reassignments", {"partitions": targets})).read(ReassignmentAnswer)
    await settle()

    assert [each.outcome for each in begun.results] == ["ok", "ok"]
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
    assert [each.replicas for each in again.loads] == [each.replicas_planned for each in planned.loads]


async def test_a_move_that_waits_is_listed_with_what_it_waits_for_and_can_be_cancelled(server: Served) -> None:
    assert server.participants is not None
    await server.controller.create_topic("bills", assignment={0: [1, 2]})
    await server.participants.kill(3)  # and the controller does not know it yet
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

    assert [each.outcome for each in cancelled.read(ReassignmentAnswer).results] == ["ok"]
    (view,) = server.controller.partitions_of("bills")
    assert (set(view.replicas), view.adding, view.removing, view.leader) == ({1, 2}, (), (), 1)
    again = (await server.ask("DELETE", "/v1/reassignments/bills/0")).read(ReassignmentAnswer)
    assert [each.error_name for each in again.results] == ["NO_REASSIGNMENT_IN_PROGRESS"]


# -- brokers and the controllership ------------------------------------------------------------------------------------


async def test_a_broker_is_drained_and_kept_after_all(server: Served) -> None:
    drained = (await server.post("/v1/brokers/1/drain", {"reason": "a new disk"})).read(BrokerDrained)
    await settle()

    assert drained.remaining == ()
    assert 1 not in leaders(server, "orders")
    assert (await server.get("/v1/brokers/1")).json()["state"] == "shutting_down"

    kept = await server.post("/v1/brokers/1/drain", {"undo": True})

    assert kept.status == 200
    assert (await server.get("/v1/brokers/1")).json()["state"] == "live"


async def test_a_drain_states_what_becomes_of_partitions_before_and_after(server: Served) -> None:
    await server.controller.create_topic("pair", assignment={0: (1, 2)}, config={"min.insync.replicas": "2"})
    await settle()

    tried = (await server.post("/v1/brokers/1/drain", {"dry_run": True})).read(BrokerDrained)
    assert server.controller.cluster.shutting_down == frozenset()
    drained = (await server.post("/v1/brokers/1/drain")).read(BrokerDrained)
    await settle()
    undone = (await server.post("/v1/brokers/1/drain", {"undo": True})).read(BrokerDrained)

    assert tried.effect == drained.effect is not None
    assert drained.effect.left_isr.count == 5
    assert [each.topic for each in drained.effect.under_min_isr.first] == ["pair"]
    assert drained.effect.last_in_sync == drained.effect.under_min_isr
    assert undone.effect is None


async def test_the_controllership_is_given_up_taken_again_and_both_are_told(server: Served) -> None:
    epoch = server.controller.cluster.fence.epoch

    answer = await server.post("/v1/controller/resign", {"expected_epoch": epoch, "reason": "to see"})
    await settle()

    assert answer.read(Resigned).epoch == epoch
    info = (await server.get("/v1/controller")).read(ControllerInfo)
    assert (info.is_active, info.epoch) == (True, epoch + 1)
    terms = (await server.get("/v1/controller/history")).read(TermList).items
    assert [(each.epoch, each.cause, each.ended_ms is None) for each in terms] == [
        (epoch, "asked to resign", False),
        (epoch + 1, "", True),
    ]


async def test_the_queue_tells_what_was_handled(server: Served) -> None:
    await server.post("/v1/elections", {"type": "preferred", "all": True})

    found = (await server.get("/v1/controller/queue")).read(QueueInfo)

    assert (found.depth, found.current, found.next) == (0, None, ())
    tallies = {each.label: each for each in found.kinds}
    assert (tallies["ElectionRequested"].handled, tallies["ElectionRequested"].failed) == (1, 0)
    assert tallies["ElectionRequested"].process.count == 1
