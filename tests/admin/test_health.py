"""`GET /v1/cluster` on the controller and on a standby, and stuck reassignments and deletions."""

import contextlib
from collections.abc import AsyncIterator

import numpy as np
import pytest

from kactl.actors.system import Controller
from kactl.admin.progress import ProgressWatch
from kactl.admin.schema import ClusterInfo, HealthCheck
from kactl.decide.state.cluster import Cluster
from kactl.model import Assignment, Leadership, TopicPartition
from kactl.model.errors import StoreUnavailable
from kactl.participant.group import Participants
from kactl.stores.base import Assignments, Leaderships
from kactl.stores.memory import MemoryStore
from kactl.transports.memory import MemoryHub
from tests.admin.conftest import Served, served
from tests.support.clocks import ManualClock, settle
from tests.support.controller_harness import world

pytestmark = pytest.mark.anyio


async def cluster_of(server: Served) -> ClusterInfo:
    health: ClusterInfo = (await server.get("/v1/cluster")).read(ClusterInfo)
    return health


async def checks_of(server: Served) -> dict[str, HealthCheck]:
    return {check.name: check for check in (await cluster_of(server)).checks}


async def failing(server: Served) -> dict[str, str]:
    """Returns the checks that do not pass, with their results."""
    return {
        name: check.result for name, check in (await checks_of(server)).items() if check.result not in ("pass", "skip")
    }


async def test_cluster_without_failures_is_healthy(server: Served) -> None:
    health = await cluster_of(server)

    assert await failing(server) == {}
    assert (health.status, health.is_active, health.brokers, health.partitions) == ("healthy", True, 3, 4)


async def test_failed_checks_name_brokers_and_partitions(server: Served) -> None:
    assert server.participants is not None
    await server.controller.create_topic("only", assignment={0: (3,)})
    await server.controller.create_topic("strict", assignment={0: (2, 3)}, config={"min.insync.replicas": "2"})
    await server.participants.kill(3)
    await server.clock.advance(60_000)
    await settle()

    health = await checks_of(server)

    assert (await cluster_of(server)).status == "unhealthy"
    assert (health["offline-partitions"].result, health["offline-partitions"].names) == ("fail", ("only-0",))
    assert health["offline-partitions"].remedy == "kactl explain only-0 names what each waits for"
    assert health["under-min-isr"].names == ("only-0", "strict-0")
    assert (health["unreachable-brokers"].result, health["unreachable-brokers"].names) == ("fail", ("3",))
    assert health["under-replicated"].value == 5
    assert health["under-replicated"].detail == "out of sync on brokers 3 (5)"


async def test_drained_broker_is_a_warning_with_the_undo_command(server: Served) -> None:
    await server.controller.drain(2)
    await settle()

    health = await checks_of(server)

    assert (await cluster_of(server)).status == "degraded"
    assert health["drained-brokers"].remedy == "kactl broker drain --undo 2"


async def test_imbalance_of_a_drained_broker_recommends_no_election(server: Served) -> None:
    await server.controller.create_topic("uneven", assignment={0: (2, 1), 1: (2, 3)})
    await server.controller.drain(2)
    await settle()

    drained = (await checks_of(server))["preferred-imbalance"]
    await server.controller.restore(2)
    await settle()
    await server.clock.advance(1_000)
    restored = (await checks_of(server))["preferred-imbalance"]

    assert (drained.result, restored.result) == ("warn", "warn")
    assert drained.remedy == "broker 2 is drained, and leads nothing until kactl broker drain --undo 2"
    assert restored.remedy == "kactl elect preferred --all"


async def test_limits_come_from_the_configuration() -> None:
    settings = {
        "health.unreachable-brokers": 1,
        "health.under-replicated": 100,
        "health.preferred-imbalance-percent": 50,
    }
    async with served(settings=settings) as server:
        assert server.participants is not None
        await server.controller.create_topic("orders", partitions=4, replication_factor=3)
        await server.participants.kill(3)
        await server.clock.advance(60_000)
        await settle()

        assert await failing(server) == {}


# -- stuck work -------------------------------------------------------------------------------------------------------


async def test_reassignment_to_a_dead_broker_fails_at_once(server: Served) -> None:
    assert server.participants is not None
    await server.controller.create_topic("bills", assignment={0: (1, 2)})
    await server.participants.kill(3)  # still registered, because its session has not expired
    await server.controller.reassign({TopicPartition("bills", 0): (1, 3)})
    await server.clock.advance(60_000)
    await settle()

    stuck = (await checks_of(server))["stuck-reassignments"]

    assert (stuck.result, stuck.names) == ("fail", ("bills-0",))
    assert "broker 3 cannot serve: start it, or choose another target" in stuck.detail


async def test_reassignment_without_progress_fails_after_the_limit() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1]])
        await w.controller.reassign({TopicPartition("t", 0): (2, 3)})
        await settle()
        watch, cluster = ProgressWatch(w.clock), w.controller.cluster
        assert watch.reassignments(cluster, limit_ms=60_000).count == 0

        await w.wait(60_001)
        late = watch.reassignments(cluster, limit_ms=60_000)
        await w.write_isr("t-0", 1, 2)
        after_progress = watch.reassignments(cluster, limit_ms=60_000)
        await w.wait(60_001)
        late_again = watch.reassignments(cluster, limit_ms=60_000)

        assert (late.count, late.running) == (1, 1)
        assert late.first[0][0] == "t-0"
        assert "has not yet added brokers 2, 3 to the ISR" in late.first[0][1]
        assert after_progress.count == 0
        assert late_again.count == 1


async def test_halted_deletion_fails_at_once_and_slow_one_after_the_limit() -> None:
    async with world(1, 2, 3) as w:
        await w.create("halted", [[1, 3]])
        await w.create("slow", [[1, 2]])
        await w.stop(3)
        w.brokers.silent.add(2)
        await w.delete("halted", "slow")
        watch, cluster = ProgressWatch(w.clock), w.controller.cluster

        at_first = watch.deletions(cluster, limit_ms=60_000)
        await w.wait(60_001)
        later = watch.deletions(cluster, limit_ms=60_000)

        assert (at_first.count, at_first.running) == (1, 2)
        ((name, reason),) = at_first.first
        assert name == "halted"
        assert "start broker 3" in reason
        assert [check for check, _ in later.first] == ["halted", "slow"]


def test_stuck_reassignments_of_a_large_cluster_are_found_fast() -> None:
    """100,000 partitions are being reassigned; only ten names are built."""
    cluster, clock = Cluster(0), ManualClock()
    count = 100_000
    names = {
        TopicPartition(f"t{number // 1000}", number % 1000): Assignment((1, 2), (2,), ()) for number in range(count)
    }
    at = cluster.put_assignments(Assignments.of(names))
    cluster.put_leaderships(at, Leaderships.of([Leadership(1, 0, (1,), 0, 1)] * count))
    cluster.reassigning = set(names)
    named = 0
    real = cluster.table.names

    def counted(rows: np.ndarray) -> object:
        nonlocal named
        named += len(rows)
        return real(rows)

    cluster.table.names = counted  # type: ignore[method-assign,assignment]

    health = ProgressWatch(clock).reassignments(cluster, limit_ms=60_000)

    assert (health.count, health.running, len(health.first)) == (count, count, 10)
    assert named == 10


# -- other instances ---------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def controller_and_standby() -> AsyncIterator[tuple[Controller, Served]]:
    """Controller 5 with brokers 1 and 2, and a server of standby 6."""
    clock, hub = ManualClock(), MemoryHub()
    store = MemoryStore(clock=clock)
    async with (
        Controller(5, store=store, hub=hub, clock=clock) as controller,
        Participants(2, store=store, hub=hub, clock=clock),
        served(brokers=None, store=store.another(), node_id=6) as standby,
    ):
        await controller.wait_active()
        await settle()
        yield controller, standby


async def follow(standby: Served) -> None:
    """Wait until the standby has read the changes."""
    for _ in range(4):
        await standby.clock.advance(1000)
        await settle()


async def test_standby_reports_health_from_its_copy() -> None:
    async with controller_and_standby() as (controller, standby):
        await controller.create_topic("orders", assignment={0: (1, 2), 1: (2, 1)})
        await controller.create_topic("strict", assignment={0: (1, 2)})
        await controller.store.set_topic_config("strict", {"min.insync.replicas": "2"})
        await follow(standby)

        health = await cluster_of(standby)
        checks = {check.name: check for check in health.checks}

        assert (health.is_active, health.controller_id, health.node_id) == (False, 5, 6)
        assert (health.brokers, health.topics, health.partitions) == (2, 2, 3)
        assert health.status == "healthy", checks
        assert checks["standby-lag"].result == "pass"
        assert {name for name, check in checks.items() if check.result == "skip"} == {
            "stuck-reassignments",
            "stuck-deletions",
            "topic-ids",
            "broker-request-backlog",
            "failed-handlers",
            "shards-without-owner",
            "broker-listeners",
            "admin-clients",
            "broker-racks",
            "certificates",
        }

        await controller.drain(2)
        await settle()
        await follow(standby)

        assert (await checks_of(standby))["under-min-isr"].names == ("strict-0",)


async def test_standby_names_offline_partitions() -> None:
    async with controller_and_standby() as (controller, standby):
        await controller.create_topic("orders", assignment={0: (1, 2)})
        await controller.create_topic("only", assignment={0: (2,)})
        await follow(standby)
        real = await standby.controller.store.membership()

        async def one_broker() -> object:
            return real._replace(brokers={1: real.brokers[1]})

        standby.controller.store.membership = one_broker  # type: ignore[method-assign,assignment]
        checks = await checks_of(standby)

        assert "only-0" in checks["offline-partitions"].names
        assert checks["unreachable-brokers"].names == ("2",)


async def test_outdated_copy_is_a_warning() -> None:
    async with controller_and_standby() as (_, standby):
        await follow(standby)

        async def away(*arguments: object, **named: object) -> object:
            raise StoreUnavailable("away")

        standby.controller.store.changes = away  # type: ignore[method-assign,assignment]
        await follow(standby)
        gone = await checks_of(standby)
        assert gone["offline-partitions"].result == "unknown"
        assert "without a copy" in gone["offline-partitions"].detail


async def test_standby_with_a_failed_store_reports_unknown() -> None:
    async with controller_and_standby() as (_, standby):
        await follow(standby)

        async def away() -> object:
            raise StoreUnavailable("away")

        standby.controller.store.membership = away  # type: ignore[method-assign,assignment]
        health = await cluster_of(standby)
        checks = {check.name: check for check in health.checks}

        assert health.status == "degraded"
        assert (checks["offline-partitions"].result, checks["under-min-isr"].result) == ("unknown", "unknown")
        assert "the store does not respond: away" in checks["offline-partitions"].detail


async def test_no_known_controller_fails_the_check(standby: Served) -> None:
    standby.controller.loop.controllership.active_id = None

    assert (await checks_of(standby))["one-active-controller"].result == "fail"


async def test_suspended_session_fails_the_check(server: Served) -> None:
    server.controller.channels.gate.pause("the store is not heard of")

    health = (await checks_of(server))["store-session"]
    server.controller.channels.gate.open()

    assert (health.result, health.detail) == ("fail", "the store is not heard of")
    assert (await checks_of(server))["store-session"].result == "pass"


async def test_metrics_count_partitions_at_and_under_min_isr() -> None:
    async with served() as server:
        for name, minimum in (("strict", "3"), ("usual", "2"), ("loose", "1")):
            config = {"min.insync.replicas": minimum}
            await server.controller.create_topic(name, partitions=2, replication_factor=3, config=config)
        await settle()

        before = (await server.get("/metrics")).body.decode()
        assert server.participants is not None
        await server.participants.kill(3)
        await server.clock.advance(60_000)
        await settle()
        after = (await server.get("/metrics")).body.decode()

    gauge = "\nkafka_controller_partition_{}_min_isr {}.0\n"
    assert gauge.format("under", 0) in before
    assert gauge.format("at", 2) in before
    assert gauge.format("under", 2) in after
    assert gauge.format("at", 2) in after
