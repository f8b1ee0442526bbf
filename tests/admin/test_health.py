"""`GET /v1/cluster` on the controller and on a standby, and how long reassignments and deletions have been stuck."""

import contextlib
from collections.abc import AsyncIterator

import numpy as np
import pytest

from kactl.actors.system import Controller
from kactl.admin.progress import ProgressWatch
from kactl.admin.schema import ClusterInfo, HealthCheck
from kactl.errors import StoreUnavailable
from kactl.model import Assignment, Leadership, TopicPartition
from kactl.participant.group import Participants
from kactl.state.cluster import Cluster
from kactl.stores.base import Assignments, Leaderships
from kactl.stores.memory import MemoryStore
from kactl.transports.memory import MemoryHub
from tests.admin.conftest import Served, served
from tests.support.clocks import ManualClock, settle
from tests.support.controller_harness import world

pytestmark = pytest.mark.anyio


async def cluster_of(server: Served) -> ClusterInfo:
    found: ClusterInfo = (await server.get("/v1/cluster")).read(ClusterInfo)
    return found


async def checks_of(server: Served) -> dict[str, HealthCheck]:
    return {each.name: each for each in (await cluster_of(server)).checks}


async def failing(server: Served) -> dict[str, str]:
    """Checks that do not pass, with their results."""
    return {
        name: each.result for name, each in (await checks_of(server)).items() if each.result not in ("pass", "skip")
    }


async def test_a_cluster_that_is_in_order_is_healthy(server: Served) -> None:
    found = await cluster_of(server)

    assert await failing(server) == {}
    assert (found.status, found.is_active, found.brokers, found.partitions) == ("healthy", True, 3, 4)


async def test_lost_brokers_offline_partitions_and_missing_replicas_are_named(server: Served) -> None:
    assert server.participants is not None
    await server.controller.create_topic("only", assignment={0: (3,)})
    await server.controller.create_topic("strict", assignment={0: (2, 3)}, config={"min.insync.replicas": "2"})
    await server.participants.kill(3)
    await server.clock.advance(60_000)
    await settle()

    found = await checks_of(server)

    assert (await cluster_of(server)).status == "unhealthy"
    assert (found["offline-partitions"].result, found["offline-partitions"].names) == ("fail", ("only-0",))
    assert found["offline-partitions"].remedy == "kactl explain only-0 names what each waits for"
    assert found["under-min-isr"].names == ("only-0", "strict-0")
    assert (found["unreachable-brokers"].result, found["unreachable-brokers"].names) == ("fail", ("3",))
    assert found["under-replicated"].value == 5
    assert found["under-replicated"].detail == "out of sync on brokers 3 (5)"


async def test_a_drained_broker_is_a_warning_and_names_the_command(server: Served) -> None:
    await server.controller.drain(2)
    await settle()

    found = await checks_of(server)

    assert (await cluster_of(server)).status == "degraded"
    assert found["drained-brokers"].remedy == "kactl broker drain --undo 2"


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


# -- what is stuck -----------------------------------------------------------------------------------------------------


async def test_a_reassignment_to_a_dead_broker_is_stuck_at_once_and_named(server: Served) -> None:
    assert server.participants is not None
    await server.controller.create_topic("bills", assignment={0: (1, 2)})
    await server.participants.kill(3)  # still registered: its session has not ended
    await server.controller.reassign({TopicPartition("bills", 0): (1, 3)})
    await server.clock.advance(60_000)
    await settle()

    stuck = (await checks_of(server))["stuck-reassignments"]

    assert (stuck.result, stuck.names) == ("fail", ("bills-0",))
    assert "broker 3 cannot serve: start it, or choose another target" in stuck.detail


async def test_a_reassignment_without_progress_is_stuck_after_the_limit_and_progress_begins_it_anew() -> None:
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


async def test_a_halted_deletion_is_stuck_at_once_and_a_slow_one_after_the_limit() -> None:
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
        assert [each for each, _ in later.first] == ["halted", "slow"]


def test_stuck_work_of_a_large_cluster_is_found_in_columns() -> None:
    """100,000 partitions that are all being reassigned; the names of ten of them are made."""
    cluster, clock = Cluster(0), ManualClock()
    count = 100_000
    names = {
        TopicPartition(f"t{number // 1000}", number % 1000): Assignment((1, 2), (2,), ()) for number in range(count)
    }
    at = cluster.put_assignments(Assignments.of(names))
    cluster.put_leaderships(at, Leaderships.of([Leadership(1, 0, (1,), 0, 1)] * count))
    cluster.reassigning = set(names)
    made = 0
    real = cluster.table.names

    def counted(rows: np.ndarray) -> object:
        nonlocal made
        made += len(rows)
        return real(rows)

    cluster.table.names = counted  # type: ignore[method-assign,assignment]

    found = ProgressWatch(clock).reassignments(cluster, limit_ms=60_000)

    assert (found.count, found.running, len(found.first)) == (count, count, 10)
    assert made == 10


# -- other instances ---------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def controller_and_standby() -> AsyncIterator[tuple[Controller, Served]]:
    """Controller 5 with brokers 1 and 2, and a server of instance 6 beside it."""
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
    """Let a standby read what has changed."""
    for _ in range(4):
        await standby.clock.advance(1000)
        await settle()


async def test_a_standby_answers_from_its_copy() -> None:
    async with controller_and_standby() as (controller, standby):
        await controller.create_topic("orders", assignment={0: (1, 2), 1: (2, 1)})
        await controller.create_topic("strict", assignment={0: (1, 2)})
        await controller.store.set_topic_config("strict", {"min.insync.replicas": "2"})
        await follow(standby)

        found = await cluster_of(standby)
        checks = {each.name: each for each in found.checks}

        assert (found.is_active, found.controller_id, found.node_id) == (False, 5, 6)
        assert (found.brokers, found.topics, found.partitions) == (2, 2, 3)
        assert found.status == "healthy", checks
        assert checks["standby-lag"].result == "pass"
        assert {name for name, each in checks.items() if each.result == "skip"} == {
            "stuck-reassignments",
            "stuck-deletions",
            "broker-request-backlog",
        }

        await controller.drain(2)
        await settle()
        await follow(standby)

        assert (await checks_of(standby))["under-min-isr"].names == ("strict-0",)


async def test_a_standby_names_what_is_offline() -> None:
    async with controller_and_standby() as (controller, standby):
        await controller.create_topic("orders", assignment={0: (1, 2)})
        await controller.create_topic("only", assignment={0: (2,)})
        await follow(standby)
        real = await standby.controller.store.brokers()

        async def one_broker() -> object:
            return {1: real[1]}

        standby.controller.store.brokers = one_broker  # type: ignore[method-assign,assignment]
        checks = await checks_of(standby)

        assert "only-0" in checks["offline-partitions"].names
        assert checks["unreachable-brokers"].names == ("2",)


async def test_a_copy_that_is_not_kept_up_to_date_is_a_warning() -> None:
    async with controller_and_standby() as (_, standby):
        await follow(standby)

        async def away(*arguments: object, **named: object) -> object:
            raise StoreUnavailable("away")

        standby.controller.store.changes = away  # type: ignore[method-assign,assignment]
        await follow(standby)
        gone = await checks_of(standby)
        assert gone["offline-partitions"].result == "unknown"
        assert "without a copy" in gone["offline-partitions"].detail


async def test_a_standby_whose_store_fails_reports_unknown_instead_of_zeros() -> None:
    async with controller_and_standby() as (_, standby):
        await follow(standby)

        async def away() -> object:
            raise StoreUnavailable("away")

        standby.controller.store.brokers = away  # type: ignore[method-assign,assignment]
        found = await cluster_of(standby)
        checks = {each.name: each for each in found.checks}

        assert found.status == "degraded"
        assert (checks["offline-partitions"].result, checks["under-min-isr"].result) == ("unknown", "unknown")
        assert "the store does not respond: away" in checks["offline-partitions"].detail


async def test_no_known_controller_fails_the_check(standby: Served) -> None:
    standby.controller.loop.controllership.active_id = None

    assert (await checks_of(standby))["one-active-controller"].result == "fail"


async def test_a_session_in_doubt_fails_the_check(server: Served) -> None:
    server.controller.channels.gate.shut("the store is not heard of")

    found = (await checks_of(server))["store-session"]
    server.controller.channels.gate.open()

    assert (found.result, found.detail) == ("fail", "the store is not heard of")
    assert (await checks_of(server))["store-session"].result == "pass"
