"""Drains outlive controllers and registrations, and end by an operator, a time limit or a registration."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from kactl.actors.system import Controller
from kactl.decide.messages.control import LeaderAndIsr, StopReplica, UpdateMetadata
from kactl.decide.messages.log import BrokerEvent
from kactl.model import NO_LEADER, Drain, Maintenance, PartitionState, TopicPartition
from kactl.model.errors import BadRequest, BrokerNotAvailable, StoreUnavailable
from kactl.stores.formats.admin_records import decode_maintenance, encode_maintenance
from tests.support.clocks import settle
from tests.support.controller_harness import (
    RecordingBrokers,
    World,
    open_standby,
    partitions_of,
    resign_for_good,
    world,
)
from tests.support.scripted_store import fails

pytestmark = pytest.mark.anyio

MINUTE_MS = 60_000


@asynccontextmanager
async def next_controller(w: World, node_id: int = 200) -> AsyncIterator[RecordingBrokers]:
    """Let another instance take over. `w` then shows that instance."""
    former = w.controller
    other, transport = open_standby(w, node_id)
    async with other:
        await settle()
        await resign_for_good(w)
        assert other.is_active
        w.controller, w.brokers = other, transport
        try:
            yield transport
        finally:
            w.controller = former


def drained(controller: Controller) -> list[int]:
    return sorted(controller.cluster.drained)


async def stored_drains(w: World) -> dict[int, Drain]:
    return (await w.store.membership()).maintenance.drains


# -- other controllers -------------------------------------------------------------------------------------------------


async def test_drain_outlives_two_controllers() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[2, 1], [1, 2], [3, 2]])
        await w.controller.drain(2, by="ann", reason="a new disk")
        began_ms = w.clock.now_ms()

        async with next_controller(w, 200) as first:
            assert drained(w.controller) == [2]
            assert {name for one in first.of(2) if isinstance(one, StopReplica) for name in _partitions(one)} == {
                "t-0",
                "t-1",
                "t-2",
            }
            async with next_controller(w, 201):
                await w.wait(10 * MINUTE_MS)

                assert drained(w.controller) == [2]
                assert await stored_drains(w) == {2: Drain(began_ms, by="ann", reason="a new disk")}
                stored = [(await w.stored(f"t-{number}"))[::2] for number in range(3)]
                assert stored == [
                    (1, (1,)),
                    (1, (1,)),
                    (3, (3,)),
                ]
                assert await w.controller.restore(2) is True
                await settle()
                await w.write_isr("t-0", 1, 2)
                await w.controller.elect("preferred", ["t-0"])
                assert (await w.stored("t-0"))[0] == 2
                await w.check()


def _partitions(request: StopReplica) -> list[str]:
    return [
        f"{request.topics[topic].name}-{partition}"
        for topic, partition in zip(request.topic.tolist(), request.partition.tolist(), strict=True)
    ]


async def test_balance_and_preferred_elections_skip_a_drained_broker_after_a_takeover() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        await w.controller.drain(2)
        await w.write_isr("t-0", 1, 2)  # a broker below level 2.7 may write it

        async with next_controller(w):
            await w.write_isr("t-0", 1, 2)
            refused = await w.controller.elect("preferred", ["t-0"])
            await w.wait(10 * MINUTE_MS)

            assert refused[0].error
            assert (await w.stored("t-0"))[0] == 1


async def test_drain_that_was_only_stored_goes_on_under_the_next_controller() -> None:
    """As after kill -9 between the write of the drain and the elections."""
    async with world(1, 2, 3) as w:
        await w.create("t", [[2, 1], [1, 2], [2]])
        await w.store.write_maintenance(Maintenance({2: Drain(0)}), w.controller.cluster.fence)

        async with next_controller(w):
            assert (await w.stored("t-0"))[::2] == (1, (1,))
            assert (await w.stored("t-1"))[::2] == (1, (1,))
            assert (await w.stored("t-2"))[::2] == (2, (2,))
            assert w.known("t-2").state is PartitionState.ONLINE
            await w.check()


async def test_takeover_leaves_a_drained_leader_without_successor_in_office() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        await w.write_isr("t-0", 2)
        assert await w.controller.drain(2) == [TopicPartition("t", 0)]
        before = await w.stored("t-0")

        async with next_controller(w):
            assert await w.stored("t-0") == before
            assert w.controller.cluster.offline_count == 0
            await w.write_isr("t-0", 1, 2)
            assert (await w.stored("t-0"))[::2] == (1, (1,))


async def test_failure_of_another_broker_leaves_a_drained_leader_in_office() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[2, 1]])
        await w.write_isr("t-0", 2)
        await w.controller.drain(2)
        before = await w.stored("t-0")

        await w.stop(3)

        assert await w.stored("t-0") == before
        assert w.known("t-0").state is PartitionState.ONLINE


async def test_topic_on_a_drained_broker_is_deleted_after_a_takeover() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.controller.drain(2)

        async with next_controller(w):
            await w.delete("t")

            assert await w.store.topics() == []


async def test_standby_shows_a_drain() -> None:
    async with world(1, 2) as w:
        other, _ = open_standby(w, 200)
        async with other:
            await settle()
            await w.wait(MINUTE_MS)
            await w.controller.drain(2)
            await w.wait(MINUTE_MS)

            view = await other.loop.standby.view()

            assert view is not None
            assert 2 in view.cluster.maintenance.drains


async def test_unreadable_maintenance_does_not_keep_a_controller_from_its_office(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for data in (b"", b"{", b"[]", b'{"drains":{"x":{}}}', b'{"drains":{"1":{"since_ms":"y"}}}'):
        assert decode_maintenance(data, "/kactl/maintenance") == Maintenance()
    assert decode_maintenance(b'{"drains":{"1":{"since_ms":5,"later":1}}}', "x") == Maintenance({1: Drain(5)})
    assert decode_maintenance(encode_maintenance(Maintenance({1: Drain(5)})), "x") == Maintenance({1: Drain(5)})
    assert "/kactl/maintenance is malformed" in caplog.text


# -- registrations -----------------------------------------------------------------------------------------------------


async def test_drained_broker_that_restarts_stays_drained() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        await w.controller.drain(2)
        await w.stop(2)
        assert w.controller.cluster.shutting_down == frozenset()
        w.brokers.forget()

        await w.start(2)
        await w.wait(10 * MINUTE_MS)

        assert drained(w.controller) == [2]
        *_, ordered, stopped = (each for each in w.brokers.of(2) if not isinstance(each, UpdateMetadata))
        assert isinstance(ordered, LeaderAndIsr), "its first one names all that it hosts"
        assert isinstance(stopped, StopReplica)
        assert partitions_of(stopped) == partitions_of(ordered) == ["t-0"]
        assert (await w.stored("t-0"))[::2] == (1, (1,))
        w.brokers.forget()
        await w.controller.restore(2)
        await settle()
        assert set(w.brokers.told(2)) == {"t-0"}
        await w.check()


async def test_restarted_drained_broker_serves_what_no_other_can() -> None:
    async with world(1, 2, unclean=True) as w:
        await w.create("alone", [[2]])
        await w.create("last", [[2, 1]])
        await w.write_isr("last-0", 2)
        await w.controller.drain(2)

        await w.stop(1)
        await w.start(2)
        await w.start(1)

        assert (await w.stored("alone-0"))[::2] == (2, (2,))
        assert (await w.stored("last-0"))[::2] == (2, (2,)), "no records are given up for the drain"
        await w.write_isr("last-0", 1, 2)
        assert (await w.stored("last-0"))[::2] == (1, (1,))
        await w.check()


@pytest.mark.parametrize("bounces", [True, False])
async def test_drain_until_a_restart_ends_when_the_broker_has_registered_anew(bounces: bool) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        await w.controller.drain(2, until_restart=True)
        async with next_controller(w):
            assert drained(w.controller) == [2]
            if not bounces:
                await w.stop(2)
                assert list(await stored_drains(w)) == [2]

            await w.start(2)

            assert drained(w.controller) == []
            assert await stored_drains(w) == {}
            assert set(w.brokers.told(2)) == {"t-0"}
            assert [event.detail for event in _events(w, "undrained")] == [
                "it has registered anew, or its time limit has passed"
            ]


async def test_drain_until_a_restart_ends_without_a_controller() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        await w.controller.drain(2, until_restart=True)
        await resign_for_good(w)
        await w.start(2)

        other, _ = open_standby(w, 200)
        async with other:
            await settle()

            assert drained(other) == []
            assert await stored_drains(w) == {}


async def test_failed_write_of_the_end_of_a_drain_is_repeated() -> None:
    async with world(1, 2) as w:
        await w.controller.drain(2, until_restart=True)
        w.script("write_maintenance", fails(StoreUnavailable("it is away")))

        await w.start(2)
        await w.wait(2_000)

        assert drained(w.controller) == []
        assert await stored_drains(w) == {}


# -- time limits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("registered", [True, False])
async def test_drain_ends_at_its_time_limit(registered: bool) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        await w.controller.drain(2, until_ms=w.clock.now_ms() + 90 * MINUTE_MS)
        if not registered:
            await w.stop(2)

        async with next_controller(w):
            await w.wait(89 * MINUTE_MS)
            assert list(await stored_drains(w)) == [2]
            await w.wait(MINUTE_MS)

            assert await stored_drains(w) == {}
            assert drained(w.controller) == []
            assert [event.detail for event in _events(w, "undrained")] == ["its time limit has passed"]


async def test_time_limit_that_passed_without_a_controller_ends_the_drain() -> None:
    async with world(1, 2) as w:
        await w.controller.drain(2, until_ms=w.clock.now_ms() + 1_000)
        await resign_for_good(w)
        await w.clock.advance(2_000)

        other, _ = open_standby(w, 200)
        async with other:
            await settle()

            assert (drained(other), await stored_drains(w)) == ([], {})


async def test_time_limit_follows_a_wall_clock_that_is_set() -> None:
    async with world(1, 2) as w:
        await w.controller.drain(2, until_ms=w.clock.now_ms() + 60 * MINUTE_MS)

        w.clock.step_ms = 60 * MINUTE_MS
        await w.wait(MINUTE_MS)

        assert drained(w.controller) == []


async def test_failed_end_at_a_time_limit_is_repeated() -> None:
    async with world(1, 2) as w:
        await w.controller.drain(2, until_ms=w.clock.now_ms() + 1_000)
        w.script("write_maintenance", fails(StoreUnavailable("it is away")))

        await w.wait(1_000)
        assert drained(w.controller) == [2]
        await w.wait(5_000)

        assert (drained(w.controller), await stored_drains(w)) == ([], {})


@pytest.mark.parametrize("until_ms", [-1, 0, 1_700_000_000_000, 2**62, 1.5, "tomorrow"])
async def test_invalid_time_limit_changes_nothing(until_ms: object) -> None:
    async with world(1, 2) as w:
        with pytest.raises(BadRequest, match="until_ms"):
            await w.controller.drain(2, until_ms=until_ms)  # type: ignore[arg-type]

        assert (drained(w.controller), await stored_drains(w)) == ([], {})


# -- orders ------------------------------------------------------------------------------------------------------------


async def test_second_drain_replaces_the_first_and_keeps_its_beginning() -> None:
    async with world(1, 2) as w:
        began_ms = w.clock.now_ms()
        await w.controller.drain(2, until_ms=began_ms + 2 * MINUTE_MS, by="ann", reason="a disk")
        await w.wait(MINUTE_MS)

        await w.controller.drain(2, by="ben", reason="a new rack")
        await w.wait(10 * MINUTE_MS)

        assert await stored_drains(w) == {2: Drain(began_ms, by="ben", reason="a new rack")}
        assert drained(w.controller) == [2]


async def test_drained_broker_that_has_stopped_can_be_drained_anew_and_undrained() -> None:
    async with world(1, 2) as w:
        await w.controller.drain(2)
        await w.stop(2)

        assert await w.controller.drain(2, until_restart=True, dry_run=True) == []
        assert (await stored_drains(w))[2].ends_with_registration is False
        assert await w.controller.drain(2, until_restart=True) == []
        assert (await stored_drains(w))[2].ends_with_registration is True
        assert await w.controller.restore(2) is True
        assert await stored_drains(w) == {}
        with pytest.raises(BrokerNotAvailable):
            await w.controller.restore(2)
        with pytest.raises(BrokerNotAvailable):
            await w.controller.drain(2)


async def test_undo_of_what_is_not_drained_changes_nothing() -> None:
    async with world(1, 2) as w:
        assert await w.controller.restore(2) is False

        assert await stored_drains(w) == {}
        assert not _events(w, "undrained")


async def test_all_brokers_can_be_drained_and_go_on_leading() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2], [2, 1]])

        await w.controller.drain(1)
        remaining = await w.controller.drain(2)
        await w.create("n", [[1, 2]])

        assert remaining == [TopicPartition("t", 0), TopicPartition("t", 1)]
        assert w.known("n-0").leader == NO_LEADER
        async with next_controller(w):
            assert [(await w.stored(name))[::2] for name in ("t-0", "t-1")] == [(2, (2,)), (2, (2,))]
            await w.controller.restore(1)
            await settle()
            assert (await w.stored("n-0"))[0] == 1


async def test_drain_that_cannot_be_stored_changes_nothing() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        w.script("write_maintenance", fails(StoreUnavailable("it is away")))

        with pytest.raises(StoreUnavailable):
            await w.controller.drain(2)

        assert (drained(w.controller), (await w.stored("t-0"))[0]) == ([], 2)
        assert not _events(w, "drained")


async def test_drain_of_a_deposed_controller_is_not_stored() -> None:
    async with world(1, 2) as w:
        await w.store.contest(300, take_over=True)

        with anyio.fail_after(60), pytest.raises(Exception, match="controller"):
            await w.controller.drain(2)

        assert await stored_drains(w) == {}


async def test_events_say_by_whom_until_when_and_why() -> None:
    async with world(1, 2) as w:
        until_ms = w.clock.now_ms() + 60 * MINUTE_MS
        await w.controller.drain(2, until_ms=until_ms, until_restart=True, by="ann", reason="a disk")
        await w.controller.restore(2, by="ben")

        assert [(event.what, event.detail) for event in _events(w, "drained", "undrained")] == [
            (
                "drained",
                "by ann, since 2023-11-14T22:13:20Z, until 2023-11-14T23:13:20Z, until it registers anew: a disk",
            ),
            ("undrained", "undone by ben"),
        ]


async def test_ordinary_takeovers_write_no_maintenance() -> None:
    async with world(1, 2) as w:
        w.script("write_maintenance", fails(AssertionError("nothing is drained")))
        async with next_controller(w):
            await w.start(2)

            assert (await w.store.membership()).maintenance == Maintenance()


def _events(w: World, *kinds: str) -> list[BrokerEvent]:
    return [event for event in w.events("broker") if isinstance(event, BrokerEvent) and event.what in kinds]
