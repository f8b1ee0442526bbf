"""Automatic preferred leader elections: when checks run and which leaders move."""

import logging

import pytest

from kactl.actors.handlers import balance as balancing
from kactl.decide.messages.admin import ElectionKind
from kactl.decide.messages.events import AutoPreferredReplicaLeaderElection
from kactl.model import NO_LEADER, Assignment, TopicPartition
from tests.support.clocks import settle
from tests.support.controller_harness import World, open_standby, world
from tests.support.scripted_store import after, fails

pytestmark = pytest.mark.anyio

FIRST_MS, INTERVAL_MS = 5_000, 300_000


async def create_imbalanced(w: World, topic: str, *, partitions: int, moved: int) -> None:
    """Create a topic with replicas on 1 and 2, of which 2 leads the first `moved` partitions, in sync with 1."""
    await w.create(topic, [[1, 2]] * partitions)
    await bring_elsewhere(w, {topic: moved})


async def bring_elsewhere(w: World, moved: dict[str, int]) -> None:
    """Let 2 lead that many partitions of each topic, in sync with 1, and 1 all others."""
    await w.stop(1)
    await w.start(1)
    returned = []
    for topic, count in moved.items():
        for each in w.controller.partitions_of(topic):
            await w.write_isr(str(each.name), 1, 2)
            if each.partition >= count:
                returned.append(each.name)
    await w.controller.elect(ElectionKind.PREFERRED, returned)
    await settle()
    for topic, count in moved.items():
        assert [leader == 2 for leader in leaders_of(w, topic)] == [
            at < count for at in range(len(leaders_of(w, topic)))
        ]
    w.brokers.forget()


def leaders_of(w: World, topic: str) -> list[int]:
    return [each.leader for each in w.controller.partitions_of(topic)]


def informed_topics(w: World) -> set[str]:
    """Returns the partitions in all LeaderAndIsr requests."""
    return {name for broker in w.sessions for name in w.brokers.told(broker)}


async def run_balance_check(w: World) -> None:
    """Run a check now."""
    w.controller.loop.inbox.put(AutoPreferredReplicaLeaderElection())
    await settle()


@pytest.mark.scenario(244)
async def test_returned_preferred_replica_leads_after_the_next_check() -> None:
    async with world(1, 2, balance_interval_ms=1_000) as w:
        await w.create("t", [[1, 2]])
        await w.wait(FIRST_MS + 500)  # the first check found nothing
        await w.stop(1)
        assert await w.stored("t-0") == (2, 1, (2,))
        await w.start(1)
        await w.write_isr("t-0", 1, 2)
        assert await w.stored("t-0") == (2, 1, (1, 2))

        await w.wait(1_000)

        assert await w.stored("t-0") == (1, 2, (1, 2))
        assert w.brokers.told(2)["t-0"] == (1, 2, (1, 2), False)
        await w.check()


# -- selected partitions -----------------------------------------------------------------------------------------------


@pytest.mark.scenario(259)
async def test_imbalance_equal_to_the_limit_is_accepted() -> None:
    async with world(1, 2, balance_percentage=10) as w:
        await create_imbalanced(w, "t", partitions=10, moved=1)

        await run_balance_check(w)

        assert leaders_of(w, "t") == [2] + [1] * 9
        assert w.brokers.sent == []


@pytest.mark.scenario(260)
async def test_above_the_limit_online_in_sync_preferred_replicas_lead() -> None:
    async with world(1, 2, balance_percentage=10) as w:
        await create_imbalanced(w, "t", partitions=10, moved=3)
        await w.write_isr("t-0", 2)  # 1 lags
        w.brokers.forget()

        await run_balance_check(w)

        assert leaders_of(w, "t") == [2] + [1] * 9
        assert informed_topics(w) == {"t-1", "t-2"}
        assert await w.stored("t-1") == (1, 2, (1, 2))
        await w.check()


async def test_replica_in_a_failed_directory_is_not_elected() -> None:
    async with world(1, 2) as w:
        await create_imbalanced(w, "t", partitions=2, moved=2)
        table = w.controller.cluster.table
        table.mark_dirs(1, table.all()[:1], True)

        await run_balance_check(w)

        assert leaders_of(w, "t") == [2, 1]


async def test_broker_in_shutdown_is_not_elected() -> None:
    async with world(1, 2) as w:
        await create_imbalanced(w, "t", partitions=1, moved=1)
        w.controller.cluster.mark_shutting_down(1)

        await run_balance_check(w)

        assert leaders_of(w, "t") == [2]


@pytest.mark.scenario(261)
async def test_partitions_without_leadership_count_for_the_imbalance_ratio() -> None:
    async with world(1, 2, balance_percentage=10) as w:
        await create_imbalanced(w, "t", partitions=8, moved=1)
        left = w.script("commit", fails(ConnectionError()))
        await w.create("u", [[1, 2], [1, 2]])
        assert left == []
        assert [each.leadership for each in w.controller.partitions_of("u")] == [None, None]
        w.brokers.forget()

        # One of ten. Of the partitions with leadership it would be one of eight.
        await run_balance_check(w)

        assert leaders_of(w, "t")[0] == 2
        assert w.brokers.sent == []


@pytest.mark.scenario(262)
async def test_leaderless_partition_counts_as_imbalanced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(1, 2, 3, balance_percentage=99) as w:
        await w.create("t", [[1, 2]])
        await w.stop(1)
        await w.start(1)
        await w.stop(2)
        before = await w.stored("t-0")
        assert before == (NO_LEADER, 2, (2,))
        w.brokers.forget()
        caplog.set_level(logging.INFO)

        await run_balance_check(w)

        assert "the partitions that prefer brokers [1] are led elsewhere; moving 0 of them back" in caplog.text
        assert await w.stored("t-0") == before
        assert w.brokers.sent == []


@pytest.mark.scenario(263)
async def test_partition_in_reassignment_is_balanced_too() -> None:
    async with world(1, 2) as w:
        await create_imbalanced(w, "t", partitions=1, moved=1)
        w.controller.cluster.put_assignment(TopicPartition("t", 0), Assignment((1, 2, 3), adding=(3,), removing=(2,)))

        await run_balance_check(w)

        assert leaders_of(w, "t") == [1]


@pytest.mark.scenario(264)
@pytest.mark.parametrize(
    ("queued", "moved", "returns"),
    [
        (4, 1, False),  # one of four; with the other topic, five of eight
        (0, 2, True),  # two of four; with the other topic, two of eight
        (4, 2, True),  # those of the other topic are not balanced
    ],
)
async def test_topics_in_deletion_are_not_counted(queued: int, moved: int, returns: bool) -> None:
    async with world(1, 2, balance_percentage=25) as w:
        await w.create("q", [[1, 2]] * 4)
        await w.create("t", [[1, 2]] * 4)
        await bring_elsewhere(w, {"q": queued, "t": moved})
        w.controller.cluster.queue_deletion(["q"])

        await run_balance_check(w)

        assert leaders_of(w, "t").count(2) == (0 if returns else moved)
        assert leaders_of(w, "q").count(2) == queued


@pytest.mark.scenario(265)
async def test_zero_limit_balances_any_imbalance() -> None:
    async with world(1, 2, balance_percentage=0) as w:
        await create_imbalanced(w, "t", partitions=3, moved=0)

        await run_balance_check(w)

        assert w.brokers.sent == []
        await create_imbalanced(w, "u", partitions=30, moved=1)

        await run_balance_check(w)

        assert leaders_of(w, "u") == [1] * 30


# -- schedule of checks ------------------------------------------------------------------------------------------------


@pytest.mark.scenario(268)
async def test_checks_run_five_seconds_after_takeover_and_then_per_interval() -> None:
    assert balancing.FIRST_CHECK_MS == FIRST_MS
    async with world(1, 2) as w:
        await create_imbalanced(w, "t", partitions=1, moved=1)

        await w.wait(FIRST_MS - 1)
        assert leaders_of(w, "t") == [2]
        await w.wait(1)
        assert leaders_of(w, "t") == [1]

        await create_imbalanced(w, "u", partitions=1, moved=1)
        await w.wait(INTERVAL_MS - 1)
        assert leaders_of(w, "u") == [2]
        await w.wait(1)
        assert leaders_of(w, "u") == [1]


@pytest.mark.scenario(268)
async def test_disabled_balancing_runs_no_check() -> None:
    async with world(1, 2, auto_balance=False) as w:
        await create_imbalanced(w, "t", partitions=1, moved=1)

        await w.wait(2 * INTERVAL_MS)

        assert leaders_of(w, "t") == [2]


@pytest.mark.scenario(266)
async def test_failed_check_does_not_prevent_the_next(caplog: pytest.LogCaptureFixture) -> None:
    async with world(1, 2, balance_interval_ms=1_000) as w:
        await create_imbalanced(w, "t", partitions=1, moved=1)
        tried: list[float] = []

        async def note() -> None:
            tried.append(w.clock.monotonic_ms())

        failing = after(note, then=fails(ConnectionError()))
        w.script("commit", failing, failing, after(note))
        await w.wait(FIRST_MS + 2_000)

        assert "AutoPreferredReplicaLeaderElection was abandoned" in caplog.text
        assert tried == [5_000, 6_000, 7_000]
        assert leaders_of(w, "t") == [1]


@pytest.mark.scenario(267)
async def test_standby_runs_no_checks() -> None:
    async with world(1, 2, balance_interval_ms=1_000) as w:
        await create_imbalanced(w, "t", partitions=1, moved=1)
        second, _ = open_standby(w, 200)
        async with second:
            await settle()
            sleepers = w.clock.sleepers

            second.loop.inbox.put(AutoPreferredReplicaLeaderElection())
            await settle()

            assert w.clock.sleepers == sleepers
            assert leaders_of(w, "t") == [2]


async def test_checks_end_with_the_controllership() -> None:
    async with world(1, 2, balance_interval_ms=1_000) as w:
        await create_imbalanced(w, "t", partitions=1, moved=1)
        await w.wait(FIRST_MS)
        assert leaders_of(w, "t") == [1]
        sleepers = w.clock.sleepers
        w.controller.loop.controllership.stopping = True

        await w.controller.resign()
        await settle()

        assert w.clock.sleepers == sleepers - 1


async def test_fenced_controller_resigns_at_its_check() -> None:
    async with world(1, 2, balance_interval_ms=1_000) as w:
        await create_imbalanced(w, "t", partitions=1, moved=1)
        # Both at once, so that the check detects the fence first.
        w.controller.loop.inbox.put(AutoPreferredReplicaLeaderElection())
        await w.store.contest(200, take_over=True)
        await settle()
        w.brokers.forget()

        assert not w.controller.is_active
        await w.wait(10_000)

        assert await w.stored("t-0") == (2, 1, (1, 2))
        assert w.brokers.sent == []
