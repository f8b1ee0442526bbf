"""Conditions of a cluster at rest: each bug below leaves everything as it should be, except for one condition."""

import asyncio
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from msgspec.structs import replace

from kactl.actors import controller
from kactl.actors.channel import Channel
from kactl.actors.controller import ControllerLoop
from kactl.actors.handlers.alter_partition import IsrProposals
from kactl.actors.handlers.balance import Balancing
from kactl.actors.handlers.base import Handlers
from kactl.actors.handlers.partition_expansion import Growth
from kactl.actors.handlers.reassignment_steps import ReassignmentSteps
from kactl.actors.handlers.shutdown import Shutdowns
from kactl.actors.machines.machine import MoveResult
from kactl.actors.priority_inbox import Timers
from kactl.decide.machines import replica
from kactl.decide.messages.events import TopicDeletion
from kactl.decide.messages.leases import HolderSilence
from kactl.decide.state.cluster import Cluster
from kactl.stores.memory import MemoryStore
from kactl.testing.nodes import on
from tests.sim.engine import cluster
from tests.sim.engine.actions import brokers
from tests.sim.engine.brokers import ModelBroker, SimulatedBroker, entries, receiver
from tests.sim.engine.brokers.receiver import Receiver
from tests.sim.engine.brokers.replication import Replication
from tests.sim.engine.checkers import conditions
from tests.sim.engine.checkers.conditions import ConditionsNow
from tests.sim.engine.checkers.quiet import Limits, Quiet, Unmet
from tests.sim.engine.run import run_script
from tests.sim.engine.script import (
    Action,
    BrokersSpec,
    LatencySpec,
    LivenessSpec,
    ScheduleSpec,
    Script,
    WorldSpec,
    load,
)

# The servers of its ZooKeeper ensemble need up to 400 ms for a message to each other, and 40 ms after all faults.
SEED_OF_FAR_SERVERS: Final = 0
SLOW_SERVERS: Final = Path(__file__).with_name("slow_servers.json")
FIRST_LEADER_IN_DOUBT: Final = Path(__file__).with_name("first_leader_in_doubt.json")
REFUSED_PROPOSALS: Final = Path(__file__).with_name("refused_proposals.json")
IGNORED_LEADER: Final = Path(__file__).with_name("ignored_leader.json")
LED_FOR_AN_EARLIER_TOPIC: Final = Path(__file__).with_name("led_for_an_earlier_topic.json")
REPLICA_OF_AN_EARLIER_ID: Final = Path(__file__).with_name("replica_of_an_earlier_id.json")
TOPIC = Action("create", at_ms=1_000, args={"topic": "t1", "replicas": [[1, 2, 3], [2, 3, 1]]})
# Pauses of seconds, so that limits pass soon.
SETTINGS = {
    "session_timeout_ms": 3_000, "request_timeout_ms": 1_000.0, "lag_ms": 2_000.0, "balance_interval_ms": 1_000,
    "balance_percentage": 0, "shutdown_limit_ms": 1_000, "append_rate": 0.0,
}  # fmt: skip


def signature(
    *actions: Action, down: Collection[str] = (), level: str = "3.9", settings: dict[str, Any] = SETTINGS
) -> str:
    """Run a script with one topic. Returns its signature and the reason."""
    script = Script(
        world=WorldSpec(brokers=BrokersSpec(count=3, level=level), settings=settings),
        duration_ms=20_000,
        actions=[TOPIC, *actions],
        liveness=LivenessSpec(list(down)),
    )
    outcome = run_script(script)
    return f"{outcome.signature}: {outcome.error}"


PARTICIPANTS = WorldSpec(
    brokers=BrokersSpec(kind="participant", count=3, level="3.9", sessions="controller", links=True, handlers=True),
    settings=SETTINGS,
)
BOUNCE = Action("kill", at_ms=5_000, args={"node": "broker 1", "restart_after_ms": 5_000})
LEAVE = Action("leave", at_ms=5_000, args={"broker": "broker 3", "to": "active controller"})
DELETE = Action("delete", at_ms=10_000, args={"topic": "t1", "to": "active controller"})
MOVE = Action("reassign", at_ms=5_000, args={"targets": {"t1-0": [2, 3]}, "to": "active controller"})
FAIL = Action("fail directory", at_ms=5_000, args={"broker": "broker 3", "replica": 0})


def test_cluster_that_is_not_broken_comes_to_rest() -> None:
    assert signature(BOUNCE, LEAVE, MOVE, FAIL, down=["broker 2"]).startswith("pass")
    assert signature(MOVE, DELETE, level="2.6").startswith("pass")


@pytest.mark.parametrize(("calm_ms", "expected"), [(None, "pass"), (math.inf, "LIV-01")], ids=["fast", "slow"])
def test_servers_of_a_store_are_fast_when_faults_have_ended(
    calm_ms: float | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were 400 ms apart: a takeover that writes three times took longer than its limit."""
    if calm_ms is not None:
        monkeypatch.setattr(cluster, "PEERS_CALM_MS", calm_ms)

    assert run_script(load(SLOW_SERVERS)).signature == expected


@pytest.mark.parametrize(("again_ms", "expected"), [(10_000, "pass"), (20_000, "LIV-02")], ids=["10 s", "20 s"])
def test_leaders_may_wait_for_the_repetition_of_a_write(
    again_ms: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write fails 1 s before the faults end, so that it is repeated 9 s or 19 s after them."""
    monkeypatch.setattr(ControllerLoop._retry_later, "__kwdefaults__", {"pause_ms": again_ms})
    monkeypatch.setattr(controller, "RETRY_LATER_MS", again_ms)
    create = Action("create", at_ms=19_000, args={"topic": "t2", "replicas": [[1, 2, 3]]})
    refusals = {"rates": {"refusals": 1.0}, "for_ms": 100.0}
    fault = Action("fail store", at_ms=18_000, at_point="TopicChange: store.commit before", args=refusals)

    assert signature(create, fault).startswith(expected)


async def notify_once(cluster: cluster.SimulatedCluster, broker: SimulatedBroker) -> None:
    await cluster.operator_store.notify_log_dir(broker.id)


@pytest.mark.parametrize(("repeats", "expected"), [(True, "pass"), (False, "LIV-02")])
def test_failed_directory_is_notified_again_if_the_store_stops(
    repeats: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not repeats:
        monkeypatch.setattr(brokers, "_notify", notify_once)
    stop = Action("stop store", at_ms=5_000, args={"for_ms": 1_000})
    fail = Action("fail directory", at_ms=5_500, args={"broker": "broker 1", "replica": 0})

    assert signature(stop, fail).startswith(expected)


async def elect_nothing(self: Handlers) -> MoveResult:
    nothing = np.zeros(0, np.intp)
    return MoveResult(nothing, nothing.astype(np.uint8), nothing.astype(np.bool_))


@pytest.mark.parametrize("elects", [True, False])
def test_partitions_in_many_chunks_have_longer_to_get_leaders(elects: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not elects:
        monkeypatch.setattr(Handlers, "elect_offline", elect_nothing)
    kill = Action("kill", at_ms=29_990, args={"node": "broker 1", "ends_session": True})
    script = Script(
        world=WorldSpec(brokers=BrokersSpec(count=3), settings=SETTINGS | {"chunk_partitions": 1}),
        latency=LatencySpec(store_ms=(100.0, 100.0)),
        duration_ms=30_000,
        actions=[Action("create", at_ms=500, args={"topic": "t1", "replicas": [[1, 2, 3]] * 90}), kill],
        liveness=LivenessSpec(["broker 1"]),
    )

    outcome = run_script(script)

    assert outcome.signature == ("pass" if elects else "LIV-02")


@pytest.mark.parametrize("takes_over", [True, False])
def test_takeover_in_many_chunks_has_longer_if_servers_of_a_store_are_far_apart(
    takes_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 160 partitions leaves two dead brokers; a write takes up to 81 ms, 1 ms of them to a server."""

    async def never(self: Handlers) -> MoveResult:
        result: asyncio.Future[MoveResult] = asyncio.get_running_loop().create_future()
        return await result

    if not takes_over:
        monkeypatch.setattr(Handlers, "elect_offline", never)
    script = Script(
        world=WorldSpec(store="zookeeper", brokers=BrokersSpec(count=3), settings=SETTINGS | {"chunk_partitions": 1}),
        schedule=ScheduleSpec(seed=SEED_OF_FAR_SERVERS),
        latency=LatencySpec(store_ms=(0.5, 0.5)),
        duration_ms=40_000,
        actions=[
            Action("create", at_ms=500, args={"topic": "t1", "replicas": [[1, 2, 3]] * 160}),
            Action("kill", at_ms=38_990, args={"node": "active controller", "ends_session": True}),
            Action("kill", at_ms=39_000, args={"node": "broker 1", "ends_session": True}),
            Action("kill", at_ms=39_000, args={"node": "broker 2", "ends_session": True}),
        ],
        liveness=LivenessSpec(["broker 1", "broker 2"]),
    )

    assert run_script(script).signature == ("pass" if takes_over else "LIV-01")


def test_preferred_replica_that_does_not_lead_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(self: Balancing) -> None: ...

    monkeypatch.setattr(Balancing, "_check", check)

    assert "LIV-07: broker 1 does not lead 1 of the 1 partitions" in signature(BOUNCE)


@pytest.mark.parametrize(("remembers", "expected"), [(True, "pass"), (False, "LIV-07")])
def test_preferred_replica_that_has_resigned_need_not_lead(
    remembers: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forgets(self: Balancing, **_: Any) -> None:
        self.cluster.resigned.clear()

    if not remembers:
        monkeypatch.setattr(Balancing, "_check", forgets)
    fail = Action("fail handler", at_ms=500, args={"broker": "broker 1", "phase": "lead", "what": "resign"})

    outcome = run_script(Script(world=PARTICIPANTS, duration_ms=8_000, actions=[fail, TOPIC]))

    assert outcome.signature == expected, outcome.error


def test_broker_that_stays_marked_as_shutting_down_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def overdue(self: Shutdowns, event: Any) -> None: ...

    monkeypatch.setattr(Shutdowns, "on_controlled_shutdown_timeout", overdue)

    assert "LIV-04: broker 3 is registered, and counts as shutting down" in signature(LEAVE)


def test_drained_leader_without_its_final_assignment_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """No replica of the target can be elected, and the leader leads on."""
    actions = (
        Action("create", at_ms=1_000, args={"topic": "t2", "replicas": [[3, 2]]}),
        Action("kill", at_ms=3_000, args={"node": "broker 2", "ends_session": True}),
        Action("drain", at_ms=8_000, args={"broker": "broker 3", "to": "active controller"}),
        Action("reassign", at_ms=10_000, args={"targets": {"t2-0": [3]}, "to": "active controller"}),
    )
    assert signature(*actions, down=["broker 2"]).startswith("pass")

    async def leads_on(self: ReassignmentSteps, row_numbers: Any) -> None: ...

    monkeypatch.setattr(ReassignmentSteps, "_lead_on_unelected", leads_on)

    assert "LIV-03: leader 3 of t2-0 knows replicas [3, 2], and stored are [3]" in signature(
        *actions, down=["broker 2"]
    )


@pytest.mark.parametrize(("down", "signature"), [((), "LIV-03"), (("broker 2", "broker 3"), "pass")])
def test_replicas_of_a_cancelled_reassignment_are_found_unless_they_do_not_copy(
    monkeypatch: pytest.MonkeyPatch, down: tuple[str, ...], signature: str
) -> None:
    """The controller ends when it has stored the cancellation, and has not sent it."""
    monkeypatch.setattr(IsrProposals, "_collect_strays", lambda *_: None)
    script = Script(
        world=WorldSpec(brokers=BrokersSpec(count=3), controllers=1),
        latency=LatencySpec(store_ms=(20.0, 20.0), network_ms=(0.0, 0.0)),
        duration_ms=6_700,
        actions=[
            Action("create", at_ms=2_000, args={"topic": "t1", "replicas": [[1]]}),
            Action("reassign", at_ms=5_000, args={"targets": {"t1-0": [2, 3]}, "to": "active controller"}),
            Action("cancel", at_ms=5_130, args={"partition": 0, "to": "active controller"}),
            Action("kill", at_ms=5_130, at_point="store assignment after", args={"node": "node at point"}),
            *(Action("kill", at_ms=6_000, args={"node": node}) for node in down),
        ],
        liveness=LivenessSpec(core_down=list(down)),
    )

    assert run_script(script).signature == signature


def test_dead_member_of_an_isr_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    go_offline = replica.go_offline

    def stays(rows: Any, broker: int, **named: Any) -> Any:
        return go_offline(rows, broker, **named).replace(in_sync=rows.in_sync)

    def check_lag(self: Replication) -> None: ...

    monkeypatch.setattr(replica, "go_offline", stays)
    monkeypatch.setattr(Replication, "check_lag", check_lag)

    assert "LIV-04: partition t1-0: [3] are down and in the ISR [1, 2, 3]" in signature(down=["broker 3"])


def test_requests_that_are_answered_at_once_do_not_wait() -> None:
    """A leader proposes a drained follower twice a second. As in Kafka, each refusal is followed by UpdateMetadata."""
    assert run_script(load(REFUSED_PROPOSALS)).passed


def test_age_of_a_request_is_by_the_clock_of_its_controller() -> None:
    script = load(REFUSED_PROPOSALS)
    slow = Action("clock", at_ms=1.0, args={"node": "controller 100", "rate": 0.9, "for_ms": script.duration_ms})

    assert run_script(replace(script, actions=[slow, *script.actions])).passed


def test_request_that_waits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Channel, "oldest_ms", 1_001.0)

    assert "LIV-08: 0 requests wait for broker" in signature()


def test_timer_for_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Balancing.begin

    def begins(self: Balancing) -> None:
        begin(self)
        self._timers.set(TopicDeletion(), 1e6)

    monkeypatch.setattr(Balancing, "begin", begins)

    assert "has a timer for TopicDeletion" in signature()


@pytest.mark.parametrize(("waits_ms", "expected"), [(-1_000, "pass"), (60_000, "LIV-08")], ids=["ends", "stays"])
def test_participant_may_be_waited_for_until_shares_are_even(
    waits_ms: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last hand-over that evens out the shares begins late, and its timer with it."""
    unmet = Quiet.unmet

    def waits(self: Quiet) -> list[Unmet]:
        if not timers and (active := self._active()) is not None:
            assert active.controller is not None
            assert active.node is not None
            with on(active.node):
                timers.append(active.controller.loop.controllership._timers)
                timers[0].set(HolderSilence(1, 0), self.even_ms + waits_ms)
        return unmet(self)

    timers: list[Timers] = []
    monkeypatch.setattr(Quiet, "unmet", waits)

    outcome = run_script(Script(world=PARTICIPANTS, duration_ms=2_000, actions=[TOPIC]))

    assert outcome.signature == expected, outcome.error


def test_log_of_a_deleted_topic_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Receiver._stop

    def stops(self: Receiver, entry: Any) -> int:
        log = self.disk.logs.get(entry.name)
        error = stop(self, entry)
        if log is not None:
            self.disk.logs[entry.name] = log
        return error

    monkeypatch.setattr(Receiver, "_stop", stops)

    assert "has a log of t1-0" in signature(DELETE)


def test_deleted_topic_that_a_broker_knows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.sim.engine.brokers.receiver.LEADER_DURING_DELETE", -99)

    assert "INV-42: broker 1 knows the topics ['t1'], which are deleted" in signature(DELETE)


def test_notification_that_is_left_in_the_store_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def delete(self: MemoryStore, *args: Any, **named: Any) -> None: ...

    monkeypatch.setattr(MemoryStore, "delete_notifications", delete)

    assert "INV-42: 1 notifications wait in the store" in signature(FAIL)


def test_reassignment_that_only_memory_knows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def complete(self: Cluster, names: Any, now_ms: int) -> None: ...

    monkeypatch.setattr(Cluster, "complete_moves", complete)

    assert "INV-09: reassigned are [TopicPartition(topic='t1', partition=0)] in memory" in signature(MOVE)


def test_drained_broker_that_still_leads_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def advanced(self: Shutdowns, event: Any) -> None: ...

    alone = Action("kill", at_ms=5_000, args={"node": "broker 2", "restart_after_ms": 12_000})
    follower = Action("kill", at_ms=5_000, args={"node": "broker 3", "restart_after_ms": 12_000})
    drain = Action("drain", at_ms=12_000, args={"broker": "broker 1", "to": "active controller"})
    assert signature(alone, follower, drain).startswith("pass")

    monkeypatch.setattr(Shutdowns, "on_drain_progress", advanced)

    assert "is led by 1, which is drained, and [2, 3] are in sync" in signature(alone, follower, drain)


def test_live_replica_that_is_known_as_offline_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(states: Any) -> Any:
        return [entry._replace(offline_replicas=(3,)) for entry in entries.state_entries(states)]

    monkeypatch.setattr(receiver, "state_entries", offline)

    assert "LIV-03: broker 1 knows the live replicas [3] of t1-0 as offline" in signature()


def test_late_copy_of_metadata_is_no_violation_with_kafkas_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Action("create", at_ms=2_000, args={"topic": "t2", "replicas": [[1, 2]]})
    hold = Action("hold", at_ms=8_000, args={"node": "active controller", "to": "broker 3", "for_ms": 9_000})
    move = Action("reassign", at_ms=8_001, args={"targets": {"t2-0": [1]}, "to": "active controller"})
    assert signature(away, hold, move).startswith("pass")

    monkeypatch.setattr(ModelBroker, "has_overtaken_metadata", lambda self, name=None: False)

    assert "LIV-03: broker 3 knows" in signature(away, hold, move)


def test_late_copy_of_a_stop_is_no_violation_with_kafkas_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    create, again = (
        Action("create", at_ms=at_ms, args={"topic": "t2", "replicas": [[2, 1]]}) for at_ms in (2_000, 9_500)
    )
    late = {"node": "active controller", "to": "broker 2", "kind": "StopReplica", "for_ms": 5_000}
    delete = Action("delete", at_ms=8_000, args={"topic": "t2", "to": "active controller"})
    leader = (create, Action("hold", at_ms=7_999, args=late), delete, again)
    lags = Action("cut", at_ms=9_600, args={"node": "broker 1", "to": "broker 2", "for_ms": 5_000})
    appending = SETTINGS | {"append_rate": 10.0}
    assert signature(*leader).startswith("pass")
    assert signature(*leader, lags, settings=appending).startswith("pass")

    monkeypatch.setattr(ConditionsNow, "_may_join", lambda self, broker, name, held: self._may_lead(broker, name))
    assert "LIV-04: partition t2-0: [1] are live and not in the ISR [2]" in signature(*leader, lags, settings=appending)
    monkeypatch.setattr(ModelBroker, "has_lost", lambda self, name: False)
    assert "LIV-03: broker 2 has no replica of t2-0" in signature(*leader)


def test_late_copy_for_an_earlier_topic_without_an_id_is_no_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker 2 leads the earlier topic when the copy arrives, and the next one under the same epoch later."""
    late = {"node": "active controller", "to": "broker 2", "kind": "LeaderAndIsr", "for_ms": 3_000}
    next_topic = {"topic": "t2", "replicas": [[2, 3]], "removal": "delete", "after_ms": 500}
    actions = (
        Action("create", at_ms=2_000, args={"topic": "t2", "replicas": [[2]]}),
        Action("hold", at_ms=5_000, args=late),
        Action("reassign", at_ms=5_010, args={"targets": {"t2-0": [2, 1]}, "to": "active controller"}),
        Action("recreate", at_ms=6_900, args=next_topic),
        Action("kill", at_ms=10_000, args={"node": "broker 3", "restart_after_ms": 5_000, "ends_session": True}),
    )
    assert signature(*actions, level="2.6").startswith("pass")

    monkeypatch.setattr(ModelBroker, "has_lost", lambda self, name: False)

    assert "LIV-03: leader 2 of t2-0 knows replicas [2, 1]" in signature(*actions, level="2.6")


@pytest.mark.parametrize("side", ["before", "after"])
def test_first_leader_is_elected_after_an_injected_failure_of_the_store(side: str) -> None:
    create = Action("create", at_ms=2_000, args={"topic": "t2", "replicas": [[2, 1]]})
    fail = Action("fail", at_ms=1_900, at_point=f"TopicChange: store.commit {side}")

    assert signature(create, fail).startswith("pass")


def test_replica_of_an_earlier_topic_that_a_twin_has_deleted_is_no_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = Action("reassign", at_ms=3_000, args={"targets": {"t1-1": [3, 2, 1]}, "to": "active controller"})
    pause = Action("pause", at_ms=5_000, args={"node": "broker 2", "for_ms": 13_000})
    twin = Action("start twice", at_ms=5_500, args={"broker": "broker 2", "for_ms": 10_000})
    delete = Action("delete", at_ms=11_000, args={"topic": "t1", "to": "active controller"})
    again = Action("create", at_ms=14_000, args={"topic": "t1", "replicas": [[1, 2, 3], [3, 2, 1]]})
    actions = (raised, pause, twin, delete, again)
    by_one = Action("create", at_ms=14_000, args={"topic": "t1", "replicas": [[1, 2, 3], [1, 2, 3]]})
    raised_again = Action("reassign", at_ms=20_000, args={"targets": {"t1-1": [1, 3, 2]}, "to": "active controller"})
    same_epoch = (raised, pause, twin, delete, by_one, raised_again)
    assert signature(*actions, level="2.6").startswith("pass")
    assert signature(*actions, level="3.9").startswith("pass")
    assert signature(*same_epoch, level="2.6").startswith("pass")

    monkeypatch.setattr(ModelBroker, "has_missed_deletion", lambda self, name, twin: False)
    assert "LIV-03: broker 2 has leader" in signature(*actions, level="3.9")
    # Without ids the replica is one of an earlier topic, whatever has left it.
    assert signature(*same_epoch, level="2.6").startswith("pass")

    monkeypatch.setattr(conditions, "_is_of_another_topic", lambda replica, held: False)
    assert "LIV-03: broker 2 has leader 3 under epoch 2" in signature(*same_epoch, level="2.6")
    assert "LIV-03: broker 2 has leader" in signature(*actions, level="2.6")


@pytest.mark.parametrize(
    ("path", "owner", "rule", "violation"),
    [
        (REPLICA_OF_AN_EARLIER_ID, Receiver, "_is_unknown", "LIV-03: broker 1 has leader 1 under epoch 1 of t3-0"),
        (IGNORED_LEADER, ModelBroker, "has_lost", "LIV-03: broker 4 has leader 4 under epoch 2 of t1-0"),
        (
            LED_FOR_AN_EARLIER_TOPIC,
            ConditionsNow,
            "_is_led_for_earlier_topic",
            "INV-09: t1-0: Assignment(replicas=(1, 4)",
        ),
    ],
    ids=["replica started after its deletion", "leader ignored after late metadata", "led for an earlier topic"],
)
def test_state_left_by_a_late_request_is_no_violation(
    path: Path, owner: type, rule: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load(path)
    assert run_script(script).signature == "pass"

    monkeypatch.setattr(owner, rule, lambda self, name: False)

    outcome = run_script(script)
    assert violation in f"{outcome.signature}: {outcome.error}"


LATE = Unmet("LIV-03", "a broker is late", 10_000.0)
UNBALANCED = Unmet("LIV-07", "a broker does not lead", 300_000.0)


def first_violation(*unmet: tuple[float, list[Unmet]]) -> str:
    """Returns the first violation of conditions that are unmet at some times after the last fault; `pass` if none."""
    limits = Limits()
    for since_ms, found in unmet:
        violation = limits.violation(found, since_ms=since_ms)
        if violation is not None:
            return f"{violation.invariant} at {since_ms:g}"
    return "pass"


def test_condition_that_is_unmet_after_its_limit_is_a_violation() -> None:
    assert first_violation((10_000.0, [LATE]), (10_001.0, [LATE])) == "LIV-03 at 10001"
    assert first_violation((9_000.0, []), (10_001.0, [LATE])) == "LIV-03 at 10001"
    assert first_violation((9_000.0, [LATE, UNBALANCED]), (10_001.0, [LATE, UNBALANCED])) == "LIV-03 at 10001"
    assert first_violation((300_001.0, [UNBALANCED])) == "LIV-07 at 300001"


def test_election_of_preferred_leaders_begins_the_limits_anew() -> None:
    waiting = (280_000.0, [UNBALANCED])

    assert first_violation(waiting, (281_000.0, [LATE]), (282_000.0, [])) == "pass"
    assert first_violation(waiting, (281_000.0, [LATE]), (290_001.0, [LATE])) == "LIV-03 at 290001"
    assert first_violation(waiting, (281_000.0, [LATE, UNBALANCED]), (300_001.0, [UNBALANCED])) == "LIV-07 at 300001"


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([(5_000, {1, 2}), (20_000, {1}), (30_000, {1})], "pass"),
        ([(5_000, {1, 2}), (20_000, {1}), (30_001, {1})], "LIV-03 at 30001"),
        ([(5_000, {1, 2}), (20_000, {1, 2})], "LIV-03 at 20000"),
        ([(5_000, {1, 2}), (20_000, None)], "LIV-03 at 20000"),
        ([(5_000, set()), (9_000, {2}), (20_000, set())], "LIV-03 at 20000"),
    ],
    ids=["ends", "ended long ago", "stays", "no controller", "set later"],
)
def test_end_of_a_shutdown_mark_begins_the_limits_anew(
    looks: list[tuple[float, set[int] | None]], expected: str
) -> None:
    limits, found = Limits(), "pass"
    for since_ms, marked in looks:
        leaving = None if marked is None else frozenset(marked)
        violation = limits.violation([LATE], since_ms=since_ms, leaving=leaving)
        found = found if violation is None else f"{violation.invariant} at {since_ms}"

    assert found == expected


@pytest.mark.parametrize(("elects", "expected"), [(True, "pass"), (False, "LIV-02")])
def test_partition_may_wait_for_the_end_of_a_shutdown(
    elects: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shutdown of its only replica ends after the limit of leaders, while the store needs 200 ms for each write."""
    if not elects:
        monkeypatch.setattr(Handlers, "elect_offline", elect_nothing)
    leave = Action("leave", at_ms=18_000, args={"broker": "broker 3", "to": "active controller"})
    create = Action("create", at_ms=19_000, args={"topic": "t2", "replicas": [[3]]})
    script = Script(
        world=WorldSpec(brokers=BrokersSpec(count=3), settings=SETTINGS | {"shutdown_limit_ms": 18_950}),
        latency=LatencySpec(store_ms=(100.0, 100.0)),
        duration_ms=20_000,
        actions=[TOPIC, leave, create],
    )

    assert run_script(script).signature == expected


def test_timer_of_an_ended_registration_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is longer than a run waits for; without the end of its registration the timer would be right."""
    settings = SETTINGS | {"shutdown_limit_ms": 1_000_000}
    bounce = Action("kill", at_ms=7_000, args={"node": "broker 3", "restart_after_ms": 5_000})
    assert signature(LEAVE, bounce, settings=settings).startswith("pass")

    monkeypatch.setattr(Timers, "cancel", lambda self, event: None)

    assert "has a timer for ControlledShutdownTimeout" in signature(LEAVE, bounce, settings=settings)


def test_deletion_that_waits_for_a_drained_broker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    drain = Action("drain", at_ms=5_000, args={"broker": "broker 3", "to": "active controller"})
    assert signature(drain, DELETE).startswith("pass")

    monkeypatch.setattr(Cluster, "staying", property(lambda self: self.live_brokers.live))

    assert "LIV-05: the deletion of t1 has not ended" in signature(drain, DELETE)


def test_drained_broker_that_asks_to_shut_down_and_stays_is_drained_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drain = Action("drain", at_ms=4_000, args={"broker": "broker 3", "to": "active controller"})
    assert signature(drain, LEAVE, DELETE).startswith("pass")

    async def overdue(self: Shutdowns, event: Any) -> None: ...

    monkeypatch.setattr(Shutdowns, "on_controlled_shutdown_timeout", overdue)

    assert "LIV-04: broker 3 is registered, and counts as shutting down" in signature(drain, LEAVE)


def test_memory_of_a_topic_that_waits_for_its_deletion_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletion waits for a reassignment to broker 3, which is down; meanwhile a follower leaves the ISR."""
    cut = Action("cut", at_ms=12_000, args={"node": "broker 2", "to": "broker 1", "for_ms": 6_000})
    settings = SETTINGS | {"append_rate": 20.0}
    dead = Action("kill", at_ms=5_000, args={"node": "broker 3", "restart_after_ms": 1_000_000})
    move = Action("reassign", at_ms=9_000, args={"targets": {"t1-0": [2, 3]}, "to": "active controller"})
    assert signature(dead, move, DELETE, cut, down=["broker 3"], settings=settings).startswith("pass")
    write = IsrProposals._write

    async def writes(self: IsrProposals, broker: int, row_numbers: Any, proposed: Any) -> Any:
        apply = self.cluster.apply
        self.cluster.apply = lambda change: apply(change.take(~change.rows.queued))  # type: ignore[method-assign]
        try:
            return await write(self, broker, row_numbers, proposed)
        finally:
            self.cluster.apply = apply  # type: ignore[method-assign]

    async def read(self: IsrProposals, row_numbers: Any) -> None: ...

    monkeypatch.setattr(IsrProposals, "_write", writes)
    monkeypatch.setattr(IsrProposals, "_read", read)

    found = signature(dead, move, DELETE, cut, down=["broker 3"], settings=settings)
    assert found.startswith("INV-09"), found
    assert "in memory" in found


def test_partition_that_a_tool_adds_again_during_a_deletion_may_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """It never had a leader, as broker 3 is down, for which the deletion waits."""
    dead = Action("kill", at_ms=1_500, args={"node": "broker 3", "restart_after_ms": 1_000_000, "ends_session": True})
    grow = Action("grow stored", at_ms=8_000, args={"topic": "t1", "replicas": [3]})
    tool = [Action("grow stored", at_ms=at_ms, args={"topic": "t1", "replicas": [1, 2]}) for at_ms in (12_000, 14_000)]

    assert signature(dead, grow, DELETE, *tool, down=["broker 3"]).startswith("pass")

    async def ignored(self: Growth, event: Any) -> None: ...

    monkeypatch.setattr(Growth, "on_partition_modifications", ignored)

    found = signature(dead, DELETE, *tool, down=["broker 3"])
    assert "INV-09: t1-2: None in memory" in found


def test_first_leadership_in_doubt_may_be_unknown_during_a_deletion() -> None:
    """Broker 2 never runs, so that the deletion waits; the response to the first write was lost."""
    outcome = run_script(load(FIRST_LEADER_IN_DOUBT))

    assert outcome.signature == "pass", outcome.error


def test_deletion_waits_for_a_reassignment_to_a_drained_broker() -> None:
    drain = Action("drain", at_ms=5_000, args={"broker": "broker 3", "to": "active controller"})
    move = Action("reassign", at_ms=6_000, args={"targets": {"t2-0": [1, 3]}, "to": "active controller"})
    create = Action("create", at_ms=2_000, args={"topic": "t2", "replicas": [[1]]})
    delete = Action("delete", at_ms=10_000, args={"topic": "t2", "to": "active controller"})

    assert signature(create, drain, move, delete).startswith("pass")


def test_member_that_left_an_ownership_topic_before_its_deletion_is_no_difference() -> None:
    """Another member stays down, so that the deletion does not end."""
    brokers = BrokersSpec(kind="participant", count=3, level="3.9", sessions="controller", links=True, handlers=True)
    create = Action("create", at_ms=500, args={"topic": "o1", "partitions": 2, "standby": 2, "to": "active controller"})
    actions = [
        create,
        Action("kill", at_ms=5_000, args={"node": "broker 2"}),
        Action("delete", at_ms=6_000, args={"topic": "o1", "to": "active controller"}),
        Action("stop", at_ms=8_000, args={"node": "broker 3", "restart_after_ms": 17_000.0}),
        Action("kill", at_ms=9_500, args={"node": "active controller", "restart_after_ms": 20_000.0}),
    ]
    world = WorldSpec(brokers=brokers, controllers=1, settings={"participant_balance_ms": 500})
    liveness = LivenessSpec(["broker 2"])

    outcome = run_script(Script(world=world, duration_ms=24_000, actions=actions, liveness=liveness))

    assert outcome.passed, outcome.error


def test_shares_are_not_compared_where_they_are_not_evened_out() -> None:
    brokers = BrokersSpec(kind="participant", count=3, level="3.9", sessions="controller", links=True, handlers=True)
    create = Action("create", at_ms=1, args={"topic": "o1", "partitions": 4, "to": "active controller"})
    late = Action("cut", at_ms=1, args={"node": "broker 3", "for_ms": 50.0})
    world = WorldSpec(brokers=brokers, controllers=1, settings={"participant_balance_ms": 0})
    at_once = LatencySpec(store_ms=(0.0, 0.0), network_ms=(0.0, 0.0))

    outcome = run_script(Script(world=world, latency=at_once, duration_ms=1_000, actions=[create, late]))

    assert outcome.passed, outcome.error
