"""Conditions of a cluster at rest: each bug below leaves everything as it should be, except for one condition."""

from collections.abc import Collection
from typing import Any

import pytest

from kactl.actors.handlers.balance import Balancing
from kactl.actors.handlers.shutdown import Shutdowns
from kactl.machines import replica
from kactl.messages.events import DeletionsChanged
from kactl.state.cluster import Cluster
from kactl.stores.memory import MemoryStore
from kactl.testing.brokers.receiver import Receiver
from kactl.testing.brokers.replication import Replication
from kactl.testing.run import run_script
from kactl.testing.script import Action, BrokersSpec, LivenessSpec, Script, WorldSpec

TOPIC = Action("create", at_ms=1_000, args={"topic": "t1", "replicas": [[1, 2, 3], [2, 3, 1]]})
# Pauses of seconds, so that limits pass soon.
SETTINGS = {
    "session_timeout_ms": 3_000, "request_timeout_ms": 1_000.0, "lag_ms": 2_000.0, "balance_interval_ms": 1_000,
    "balance_percentage": 0, "shutdown_limit_ms": 1_000, "append_rate": 0.0,
}  # fmt: skip


def signature(*actions: Action, down: Collection[str] = (), level: str = "3.9") -> str:
    """Run a script with one topic. Returns its signature and the reason."""
    script = Script(
        world=WorldSpec(brokers=BrokersSpec(count=3, level=level), settings=SETTINGS),
        duration_ms=20_000,
        actions=[TOPIC, *actions],
        liveness=LivenessSpec(list(down)),
    )
    outcome = run_script(script)
    return f"{outcome.signature}: {outcome.error}"


BOUNCE = Action("kill", at_ms=5_000, args={"node": "broker 1", "restart_after_ms": 5_000})
LEAVE = Action("leave", at_ms=5_000, args={"broker": "broker 3", "to": "active controller"})
DELETE = Action("delete", at_ms=10_000, args={"topic": "t1", "to": "active controller"})
MOVE = Action("reassign", at_ms=5_000, args={"targets": {"t1-0": [2, 3]}, "to": "active controller"})
FAIL = Action("fail directory", at_ms=5_000, args={"broker": "broker 3", "replica": 0})


def test_cluster_that_is_not_broken_comes_to_rest() -> None:
    assert signature(BOUNCE, LEAVE, MOVE, FAIL, down=["broker 2"]).startswith("pass")
    assert signature(MOVE, DELETE, level="2.6").startswith("pass")


def test_preferred_replica_that_does_not_lead_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(self: Balancing) -> None: ...

    monkeypatch.setattr(Balancing, "_check", check)

    assert "LIV-07: broker 1 does not lead 1 of the 1 partitions" in signature(BOUNCE)


def test_broker_that_stays_marked_as_shutting_down_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def overdue(self: Shutdowns, event: Any) -> None: ...

    monkeypatch.setattr(Shutdowns, "on_shutdown_overdue", overdue)

    assert "LIV-04: broker 3 is registered, and counts as shutting down" in signature(LEAVE)


def test_dead_member_of_an_isr_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    go_offline = replica.go_offline

    def stays(rows: Any, broker: int, **named: Any) -> Any:
        return go_offline(rows, broker, **named).replace(in_sync=rows.in_sync)

    def check_lag(self: Replication) -> None: ...

    monkeypatch.setattr(replica, "go_offline", stays)
    monkeypatch.setattr(Replication, "check_lag", check_lag)

    assert "LIV-04: partition t1-0: [3] are down and in the ISR [1, 2, 3]" in signature(down=["broker 3"])


def test_timer_for_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Balancing.begin

    def begins(self: Balancing) -> None:
        begin(self)
        self._timers.set(DeletionsChanged(), 1e6)

    monkeypatch.setattr(Balancing, "begin", begins)

    assert "has a timer for DeletionsChanged" in signature()


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
    monkeypatch.setattr("kactl.testing.brokers.receiver.LEADER_DURING_DELETE", -99)

    assert "INV-42: broker 1 knows the topics ['t1'], which are deleted" in signature(DELETE)


def test_notification_that_is_left_in_the_store_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def delete(self: MemoryStore, *args: Any, **named: Any) -> None: ...

    monkeypatch.setattr(MemoryStore, "delete_notifications", delete)

    assert "INV-42: 1 notifications wait in the store" in signature(FAIL)


def test_reassignment_that_only_memory_knows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def complete(self: Cluster, names: Any, now_ms: int) -> None: ...

    monkeypatch.setattr(Cluster, "complete_moves", complete)

    assert "INV-09: reassigned are [TopicPartition(topic='t1', partition=0)] in memory" in signature(MOVE)
