"""Failure simulation of the running cluster: predictions are compared with the behaviour of the cluster."""

import asyncio
import dataclasses

import numpy as np
import pytest

from kactl.admin.failure_analysis import LiveSnapshot, copied
from kactl.admin.schema import Stoppable, WhatIf
from kactl.model import PartitionState, PartitionView, ReplicaState
from tests.admin.conftest import Served
from tests.support.clocks import settle
from tests.support.cluster_seeds import ClusterSeed, PartitionSeed, led, tp

pytestmark = pytest.mark.anyio


async def _whatif(server: Served, **body: object) -> WhatIf:
    answer = await server.post("/v1/whatif", body)
    assert answer.status == 200, answer.body
    found: WhatIf = answer.read(WhatIf)
    return found


async def _stoppable(server: Served, broker: int) -> Stoppable:
    found: Stoppable = (await server.get(f"/v1/brokers/{broker}/stoppable")).read(Stoppable)
    return found


async def _kill(server: Served, *brokers: int) -> None:
    assert server.participants is not None
    for broker in brokers:
        await server.participants.kill(broker)
    await server.clock.advance(30_000)  # their registrations expire


def _views(server: Served) -> list[PartitionView]:
    return [view for topic in ("orders", "single") for view in server.controller.partitions_of(topic)]


@pytest.mark.parametrize("dead", [(1,), (2, 3), (1, 2, 3)])
async def test_prediction_is_what_happens(server: Served, dead: tuple[int, ...]) -> None:
    await server.controller.create_topic("single", assignment={0: (1,), 1: (2,), 2: (3,)})
    await settle()
    before = {view.name: view.leader for view in _views(server)}

    (outcome,) = (await _whatif(server, kill=[{"brokers": dead}])).analysis.killed
    await _kill(server, *dead)

    views = _views(server)
    offline = [view for view in views if view.leader < 0]
    assert outcome.offline == len(offline) >= len(dead)
    assert outcome.moved == sum(view.leader not in (-1, before[view.name]) for view in views)
    assert outcome.lone == sum(view.leader >= 0 and len(view.isr) == 1 for view in views)
    now = (await _whatif(server)).analysis.now
    assert (now.outcome.offline, now.away) == (len(offline), dead)


async def test_broker_can_stop_while_enough_replicas_stay_in_sync(server: Served) -> None:
    await server.controller.store.set_topic_config("orders", {"min.insync.replicas": "2"})
    first = await _stoppable(server, 3)
    assert (first.stoppable, first.state, first.under_min_isr.count) == (True, "live", 0)

    await _kill(server, 1)

    second = await _stoppable(server, 3)
    assert not second.stoppable
    assert [(each.topic, each.partition) for each in second.under_min_isr.first] == [("orders", n) for n in range(4)]
    assert (second.under_min_isr.count, second.offline.count, second.last_in_sync.count) == (4, 0, 4)
    assert "refuse acks=all" in second.explained
    gone = await _stoppable(server, 1)
    assert (gone.stoppable, gone.state, gone.explained) == (True, "dead", "Broker 1 is dead.")


async def test_broker_with_the_only_replica_cannot_stop(server: Served) -> None:
    await server.controller.create_topic("single", assignment={0: (2,)})

    found = await _stoppable(server, 2)

    assert (found.stoppable, found.offline.count, found.lossy.count) == (False, 1, 0)
    assert [each.topic for each in found.offline.first] == ["single"]
    assert (await _stoppable(server, 1)).stoppable


def _live(*partitions: PartitionSeed, unclean: bool = False, min_isr: int = 1) -> LiveSnapshot:
    """Returns the snapshot of a cluster with brokers 1 to 3 and one topic, `t`."""
    named = {tp(f"t-{number}"): seed for number, seed in enumerate(partitions)}
    cluster = ClusterSeed(live=frozenset({1, 2, 3}), partitions=named).columns()
    topics = len(cluster.table.refs) + 1
    live = copied(cluster, min_isr=np.full(topics, min_isr, np.int32), unclean=np.full(topics, unclean), now_ms=0)
    return LiveSnapshot.of(live)


def _online(*replicas: int, isr: tuple[int, ...], dirs_offline: tuple[int, ...] = ()) -> PartitionSeed:
    return PartitionSeed(
        replicas=replicas,
        leadership=led(isr[0], 1, isr),
        state=PartitionState.ONLINE,
        states=dict.fromkeys(replicas, ReplicaState.ONLINE),
        dirs_offline=dirs_offline,
    )


def _harmed(live: LiveSnapshot, broker: int) -> dict[str, list[int]]:
    harmed = live.engine.harmed(live.engine.topology.positions([broker]))
    return {field.name: getattr(harmed, field.name).tolist() for field in dataclasses.fields(harmed)}


def test_allowed_unclean_election_counts_as_loss() -> None:
    partitions = _online(1, 2, isr=(1,)), _online(1, isr=(1,)), _online(1, 2, isr=(1, 2))

    forbidden, allowed = _live(*partitions), _live(*partitions, unclean=True)

    assert _harmed(forbidden, 1) == {"offline": [0, 1], "lossy": [], "under_min": [0, 1], "lone": [2]}
    assert _harmed(allowed, 1) == {"offline": [1], "lossy": [0], "under_min": [1], "lone": [2]}


def test_replica_in_a_failed_directory_cannot_lead() -> None:
    live = _live(_online(1, 2, 3, isr=(1, 2), dirs_offline=(2,)), _online(1, 2, 3, isr=(1, 2)))

    assert _harmed(live, 1) == {"offline": [0], "lossy": [], "under_min": [0], "lone": [1]}


def test_minimum_is_at_most_the_number_of_replicas() -> None:
    live = _live(_online(1, isr=(1,)), _online(1, 2, isr=(1, 2)), min_isr=3)

    assert live.prepared.partitions == 2
    assert _harmed(live, 2) == {"offline": [], "lossy": [], "under_min": [1], "lone": [1]}


def test_partition_without_leadership_is_unknown() -> None:
    live = _live(_online(1, isr=(1,)), PartitionSeed(replicas=(2,), state=PartitionState.NEW))

    assert (live.prepared.partitions, live.prepared.unknown) == (1, 1)


async def test_drained_broker_does_not_count_as_alive(server: Served) -> None:
    await server.controller.store.set_topic_config("orders", {"min.insync.replicas": "2"})
    await server.controller.drain(1)

    assert (await _stoppable(server, 1)).state == "drained"
    assert (await _stoppable(server, 1)).stoppable
    assert not (await _stoppable(server, 2)).stoppable


async def test_default_sweeps_are_brokers_and_pairs(server: Served) -> None:
    found = await _whatif(server)

    assert [each.kind for each in found.analysis.sweeps] == ["brokers", "pairs"]
    assert [each.scenarios for each in found.analysis.sweeps] == [3, 3]
    assert found.analysis.coverage.is_whole
    assert (found.restart, found.as_of.epoch) == (None, server.controller.cluster.fence.epoch)


async def test_restart_plan_of_the_running_cluster(server: Served) -> None:
    await server.controller.store.set_topic_config("orders", {"min.insync.replicas": "1"})
    plan = (await _whatif(server, restart=2)).restart
    assert plan is not None
    assert sorted(broker for step in plan.steps for broker in step.brokers) == [1, 2, 3]
    assert sorted(len(step.brokers) for step in plan.steps) == [1, 2]
    assert (plan.harmful, plan.together) == (0, 2)

    await server.controller.store.set_topic_config("orders", {"min.insync.replicas": "2"})
    await settle()
    alone = (await _whatif(server, restart=2)).restart
    assert alone is not None
    assert [len(step.brokers) for step in alone.steps] == [1, 1, 1]


async def test_answer_follows_the_cluster(server: Served) -> None:
    assert (await _whatif(server, kill=[{"brokers": [2]}])).analysis.killed[0].moved > 0
    await _kill(server, 2)
    (outcome,) = (await _whatif(server, kill=[{"brokers": [2]}])).analysis.killed
    assert (outcome.moved, outcome.scenario.brokers) == (0, ())


async def test_concurrent_requests_get_their_own_answers(server: Served) -> None:
    for first in (1, 2):
        sets = [[{"brokers": [broker]}] for broker in (first, 3)]  # no more at once are allowed to one client
        found = await asyncio.gather(*(_whatif(server, kill=each) for each in sets))
        assert [each.analysis.killed[0].scenario.brokers for each in found] == [(first,), (3,)]


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ({"kill": [{"brokers": [1]}, {"brokers": [1, 9]}]}, "/kill/1/brokers/1", "no broker 9; there are 1, 2, 3"),
        ({"kill": [{}]}, "/kill/0", "is empty"),
        ({"kill": [{"racks": ["a"]}]}, "/kill/0/racks/0", "no broker is registered with a rack"),
        ({"sweeps": ["brokers", "racks"]}, "/sweeps/1", "no broker is registered with a rack"),
        ({"sweeps": ["all"]}, "/sweeps/0", "Invalid enum value 'all'"),
        ({"restart": 0}, "/restart", ">= 1"),
        ({"kill": [{"brokers": [-1]}]}, "/kill/0/brokers/0", ">= 0"),
    ],
)
async def test_bad_request_names_the_field(shared: Served, body: object, pointer: str, words: str) -> None:
    answer = await shared.post("/v1/whatif", body)
    problem = answer.json()
    assert answer.status == 400
    assert problem["errors"][0]["pointer"] == pointer
    assert words in problem["detail"]


async def test_unknown_broker_is_not_found(shared: Served) -> None:
    answer = await shared.get("/v1/brokers/9/stoppable")
    assert answer.status == 404
    assert answer.json()["error_name"] == "BROKER_ID_NOT_REGISTERED"


async def test_standby_names_the_controller(shared_standby: Served) -> None:
    answer = await shared_standby.get("/v1/brokers/1/stoppable")
    assert answer.status == 503
    assert answer.json()["controller"]["id"] == 5
