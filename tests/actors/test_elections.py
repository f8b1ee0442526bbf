"""Requested elections: by an admin request or by a request left in the store."""

import logging

import numpy as np
import pytest

from kactl.decide.messages.admin import ElectionKind, ElectionResult
from kactl.decide.messages.broker import ControlledShutdown
from kactl.decide.messages.events import ZkReplicaLeaderElection
from kactl.decide.messages.log import ControllerEvent
from kactl.model import NO_LEADER, PartitionState, TopicPartition
from kactl.model.errors import ErrorCode, NotController, StoreUnavailable
from kactl.stores.base import Found
from tests.support.clocks import settle
from tests.support.controller_harness import World, open_standby, script, world
from tests.support.scripted_store import after, fails, really, returns, with_status

pytestmark = pytest.mark.anyio

PREFERRED, UNCLEAN = ElectionKind.PREFERRED, ElectionKind.UNCLEAN
AWAY = StoreUnavailable("the store is away")


def parse_names(*written: str) -> list[TopicPartition]:
    return [TopicPartition.parse(each) for each in written]


async def run_election(
    w: World, kind: ElectionKind, *partitions: str, dry_run: bool = False
) -> dict[str, ElectionResult]:
    results = await w.controller.elect(kind, parse_names(*partitions) if partitions else None, dry_run=dry_run)
    await settle()
    answered = {f"{each.topic}-{each.partition}": each for each in results}
    assert len(answered) == len(results)
    return answered


async def request_election(w: World, *partitions: str) -> None:
    """Write a request for preferred elections into the store."""
    await w.store.request_preferred_election(parse_names(*partitions))
    await settle()


async def fail_over_from(w: World, preferred: int, *isr: int, back: str) -> None:
    """Stop and restart the preferred replica, and add it to the ISR of `back`."""
    await w.stop(preferred)
    await w.start(preferred)
    await w.write_isr(back, *isr)


# -- on request --------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(246)
async def test_partition_with_its_preferred_leader_needs_no_election() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])

        answered = await run_election(w, PREFERRED, "t-0")

        reason = "its preferred replica 1 leads it"
        assert answered["t-0"] == ElectionResult("t", 0, "not_needed", ErrorCode.ELECTION_NOT_NEEDED, reason, 1, 1)
        assert await w.stored("t-0") == (1, 0, (1, 2))


@pytest.mark.scenario(247)
async def test_out_of_sync_preferred_replica_is_not_elected() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.stop(1)
        await w.start(1)

        answered = await run_election(w, PREFERRED, "t-0")

        assert answered["t-0"].error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert (answered["t-0"].leader, answered["t-0"].previous) == (2, 2)
        assert await w.stored("t-0") == (2, 1, (2,))


@pytest.mark.scenario(248)
async def test_in_sync_preferred_replica_is_elected_and_sent_to_all() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        await fail_over_from(w, 2, 1, 2, back="t-0")
        w.brokers.forget()

        answered = await run_election(w, PREFERRED, "t-0")

        assert answered["t-0"] == ElectionResult("t", 0, "ok", ErrorCode.NONE, "", leader=2, previous=1)
        assert await w.stored("t-0") == (2, 2, (1, 2))
        assert w.brokers.told(1) == w.brokers.told(2) == {"t-0": (2, 2, (1, 2), False)}
        await w.check()


@pytest.mark.scenario(249)
async def test_unknown_partitions_and_topics_in_deletion_are_not_elected() -> None:
    async with world(1, 2) as w:
        await w.create("q", [[1, 2]])
        await w.stop(1)
        w.controller.cluster.queue_deletion(["q"])
        for kind in (PREFERRED, UNCLEAN):
            answered = await run_election(w, kind, "none-0", "q-0", "q-7")

            assert {name: each.error for name, each in answered.items()} == {
                "none-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "q-0": ErrorCode.INVALID_TOPIC_EXCEPTION,
                "q-7": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
        # Without named partitions, topics in deletion are named nevertheless: no caller is to wait for them.
        assert (await run_election(w, PREFERRED))["q-0"].error is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.scenario(250)
async def test_partition_with_a_live_leader_needs_no_unclean_election() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.stop(1)

        answered = (await run_election(w, UNCLEAN, "t-0"))["t-0"]

        assert (answered.error, answered.message) == (ErrorCode.ELECTION_NOT_NEEDED, "its leader 2 is alive")
        assert await w.stored("t-0") == (2, 1, (2,))


@pytest.mark.scenario(251)
async def test_admin_can_elect_uncleanly_against_the_topic_config() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]], {"unclean.leader.election.enable": "false"})
        await w.stop(2)
        await w.start(2)
        await w.stop(1)
        assert await w.stored("t-0") == (NO_LEADER, 2, (1,))
        assert w.controller.partitions.unclean_elections == 0

        answered = await run_election(w, UNCLEAN, "t-0")

        assert (answered["t-0"].outcome, answered["t-0"].leader) == ("ok", 2)
        assert await w.stored("t-0") == (2, 3, (2,))
        assert w.known("t-0").recovering
        assert w.controller.partitions.unclean_elections == 1
        await w.check()


@pytest.mark.scenario(252)
async def test_unclean_election_needs_a_live_replica() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.stop(1, 2)
        before = await w.stored("t-0")

        answered = await run_election(w, UNCLEAN, "t-0")

        assert answered["t-0"].error is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        assert answered["t-0"].message == "none of its replicas is alive"
        assert await w.stored("t-0") == before
        assert w.controller.partitions.unclean_elections == 0


@pytest.mark.scenario(253)
async def test_leader_in_shutdown_is_replaced_by_an_in_sync_replica() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.stop(2)
        # Asked for by the broker itself, which asks again: the controller does not move leaders on its own meanwhile.
        assert await w.controller.ask(ControlledShutdown(1, w.epoch(1))) == parse_names("t-0")
        await w.start(2)
        await w.write_isr("t-0", 1, 2)
        assert w.known("t-0").leader == 1

        answered = await run_election(w, UNCLEAN, "t-0")

        assert (answered["t-0"].outcome, answered["t-0"].leader) == ("ok", 2)
        # A clean election: 2 was in sync. 1 is not live and leaves the ISR.
        assert await w.stored("t-0") == (2, 2, (2,))
        assert not w.known("t-0").recovering
        assert w.controller.partitions.unclean_elections == 0


@pytest.mark.scenario(254)
async def test_unreadable_partition_fails_alone() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2], [1, 2]])
        await fail_over_from(w, 1, 1, 2, back="t-1")
        # No leader is found for t-0, so that it is read, and this read fails.
        left = w.script("leaderships", returns(with_status(Found.FAILED, "t-0")))

        answered = await run_election(w, PREFERRED, "t-0", "t-1")

        assert left == []
        assert answered["t-0"].error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert answered["t-0"].message == "the store failed"
        assert answered["t-1"].error is ErrorCode.NONE
        assert await w.stored("t-0") == (2, 1, (2,))
        assert await w.stored("t-1") == (1, 2, (1, 2))


@pytest.mark.scenario(255)
async def test_inactive_controller_returns_one_top_level_error() -> None:
    async with world(1, 2) as w:
        second, _ = open_standby(w, 200)
        async with second:
            await settle()
            with pytest.raises(NotController) as refused:
                await second.elect(PREFERRED, parse_names("t-0", "u-0"))

    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert refused.value.active_id == 100


@pytest.mark.scenario(256)
@pytest.mark.parametrize(
    ("kind", "error"),
    [(PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)],
)
@pytest.mark.parametrize("state", PartitionState, ids=lambda state: state.name)
async def test_partition_without_leadership_gets_its_own_result(
    kind: ElectionKind, error: ErrorCode, state: PartitionState
) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2], [3]])
        if kind is PREFERRED:
            await fail_over_from(w, 1, 1, 2, back="t-0")
        else:
            await w.stop(2)
            await w.start(2)
            await w.stop(1)
        put_state(w, "t-1", state)
        # There is no leader to compare with: Kafka fails here and returns a result for neither partition. For a NEW or
        # absent partition it returns none, because it held no election for it.
        assert w.known("t-1").leadership is None

        dry = await run_election(w, kind, "t-1", "t-0", dry_run=True)
        answered = await run_election(w, kind, "t-1", "t-0")

        assert [(name, each.error) for name, each in answered.items()] == [("t-1", error), ("t-0", ErrorCode.NONE)]
        assert answered["t-0"].leader == w.known("t-0").leader == (1 if kind is PREFERRED else 2)
        assert (answered["t-1"].leader, answered["t-1"].previous) == (NO_LEADER, NO_LEADER)
        assert answered["t-1"].message
        assert dry == answered
        assert w.known("t-1").state is state


def put_state(w: World, name: str, state: PartitionState) -> None:
    cluster = w.controller.cluster
    cluster.set_states(np.array([cluster.table.row(TopicPartition.parse(name))], np.intp), state)


@pytest.mark.parametrize("kind", ElectionKind, ids=lambda kind: kind.value)
async def test_partition_without_a_first_leader_gets_one_and_a_result(kind: ElectionKind) -> None:
    async with world(1, 2) as w:
        left = w.script("commit", fails(AWAY))
        await w.create("t", [[2, 1]])
        # In Kafka this is not an election and not part of the response.
        assert left == []
        assert w.known("t-0").state is PartitionState.NEW

        dry = await run_election(w, kind, "t-0", dry_run=True)
        answered = await run_election(w, kind, "t-0")

        assert (
            dry == answered == {"t-0": ElectionResult("t", 0, "ok", ErrorCode.NONE, "", leader=2, previous=NO_LEADER)}
        )
        assert await w.stored("t-0") == (2, 0, (1, 2))
        await w.check()


@pytest.mark.parametrize("kind", ElectionKind, ids=lambda kind: kind.value)
async def test_partition_without_replicas_cannot_be_elected(kind: ElectionKind) -> None:
    async with world(1) as w:
        await w.create("t", [[]])

        assert (await run_election(w, kind, "t-0"))["t-0"].outcome == "failed"


async def test_results_are_unique_and_in_request_order_or_by_name() -> None:
    async with world(1, 2) as w:
        await w.create("b", [[1, 2]])
        await w.create("a", [[1, 2], [1, 2]])
        await fail_over_from(w, 1, 1, 2, back="a-0")

        named = await w.controller.elect(PREFERRED, parse_names("b-0", "none-0", "a-1", "b-0", "a-0"), dry_run=True)
        every = await w.controller.elect(PREFERRED, dry_run=True)

        assert [f"{each.topic}-{each.partition} {each.outcome}" for each in named] == [
            "b-0 failed", "none-0 failed", "a-1 failed", "a-0 ok"
        ]  # fmt: skip
        assert [f"{each.topic}-{each.partition} {each.outcome}" for each in every] == [
            "a-0 ok",
            "a-1 failed",
            "b-0 failed",
        ]
        assert await w.stored("a-0") == (2, 1, (1, 2))


async def test_admin_gets_an_error_if_the_controller_is_fenced() -> None:
    """In Kafka the admin client waits until its timeout: the response is lost with the controllership."""
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await fail_over_from(w, 1, 1, 2, back="t-0")
        left = w.script("commit", after(lambda: w.store.contest(200, take_over=True)))

        with pytest.raises(NotController) as refused:
            await w.controller.elect(PREFERRED, parse_names("t-0"))

        assert left == []
        assert refused.value.active_id == 200
        assert not w.controller.is_active
        assert await w.stored("t-0") == (2, 1, (1, 2))


# -- requests in the store ---------------------------------------------------------------------------------------------


@pytest.mark.scenario(241, 242)
async def test_stored_requests_are_executed_and_deleted_repeatedly() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        for epoch in (1, 3):
            await w.stop(1)
            assert await w.stored("t-0") == (2, epoch, (2,))
            await w.start(1)
            await w.write_isr("t-0", 1, 2)
            reads = w.script("preferred_election_request", really, really)

            await request_election(w, "t-0")

            # One read for the request, and one for a request that may have been written meanwhile.
            assert reads == []

            assert await w.stored("t-0") == (1, epoch + 1, (1, 2))
            assert w.brokers.told(1) == w.brokers.told(2) == {"t-0": (1, epoch + 1, (1, 2), False)}
            assert await w.store.preferred_election_request() is None
        await w.check()


@pytest.mark.scenario(243)
async def test_stored_request_for_a_dead_replica_is_deleted() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.stop(1)

        await request_election(w, "t-0")

        assert await w.store.preferred_election_request() is None
        assert await w.stored("t-0") == (2, 1, (2,))


@pytest.mark.scenario(245)
async def test_fenced_controller_leaves_a_stored_request_to_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await fail_over_from(w, 1, 1, 2, back="t-0")
        caplog.set_level(logging.INFO)
        # Both at once, so that the request detects the fence first.
        await w.store.request_preferred_election(parse_names("t-0"))
        await w.store.contest(200, take_over=True)

        await settle()

        assert "ZkReplicaLeaderElection: controller epoch 1 has been followed" in caplog.text
        resigned = w.events("controller")[-1]
        assert isinstance(resigned, ControllerEvent)
        assert resigned.what == "resigned"
        assert not w.controller.is_active
        assert await w.stored("t-0") == (2, 1, (1, 2))
        assert await w.store.preferred_election_request() == parse_names("t-0")


@pytest.mark.scenario(257)
async def test_absent_request_has_no_effect() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await fail_over_from(w, 1, 1, 2, back="t-0")
        w.brokers.forget()
        deletions = w.script("delete_preferred_election_request", fails(AWAY))

        w.controller.loop.inbox.put(ZkReplicaLeaderElection())
        await settle()

        assert w.brokers.sent == []
        assert len(deletions) == 1
        assert await w.stored("t-0") == (2, 1, (1, 2))


@pytest.mark.scenario(258)
async def test_takeover_executes_a_stored_request_where_possible() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        await w.create("u", [[1, 2], [3]])
        await w.create("q", [[1, 2, 3]])
        await fail_over_from(w, 1, 1, 2, back="u-0")
        await w.write_isr("q-0", 1, 2)
        w.controller.loop.controllership.stopping = True
        await w.controller.resign()
        await settle()
        before = {name: await w.stored(name) for name in ("t-0", "u-0", "q-0")}
        assert {name: state[0] for name, state in before.items()} == {"t-0": 2, "u-0": 2, "q-0": 2}
        # Broker 3 is absent, so that q stays queued for deletion throughout.
        await w.store.mark_deletion("q")
        # u-1 never had a leader. In Kafka this alone ends the controllership of each controller in turn.
        await request_election(w, "t-0", "gone-0", "q-0", "u-0", "u-1")
        second, told = open_standby(w, 200)
        reads = script(second, "preferred_election_request", really, really)
        async with second:
            await settle()

            assert second.is_active
            assert reads == []
            assert second.loop.controllership.elections_won == 1
            assert await w.store.preferred_election_request() is None
            assert (await w.stored("u-0"))[0] == 1
            assert told.told(2)["u-0"][0] == 1
            for name in ("t-0", "q-0"):
                assert await w.stored(name) == before[name]

            # The watch for the next request is set.
            await fail_over_from(w, 1, 1, 2, back="u-0")
            assert (await w.stored("u-0"))[0] == 2
            await request_election(w, "u-0")

            assert (await w.stored("u-0"))[0] == 1


async def test_undeletable_stored_request_does_not_fail_a_takeover() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await fail_over_from(w, 1, 1, 2, back="t-0")
        w.controller.loop.controllership.stopping = True
        await w.controller.resign()
        await request_election(w, "t-0")
        second, _ = open_standby(w, 200)
        left = script(second, "delete_preferred_election_request", *[fails(AWAY)] * 7)
        async with second:
            await settle()
            assert second.is_active
            assert (await w.stored("t-0"))[0] == 1

            await w.wait(30_000)

            assert left == []
            assert second.loop.controllership.elections_won == 1
            assert await w.store.preferred_election_request() is None
