"""Elections with unclean leaders, allowed by the topic, the cluster default or the instance's own setting."""

import pytest

from kactl.decide.messages.admin import ElectionKind
from kactl.model import NO_LEADER, TopicPartition
from tests.support.clocks import settle
from tests.support.controller_harness import open_standby, stop_last_in_sync, world

pytestmark = pytest.mark.anyio


# -- elections ---------------------------------------------------------------------------------------------------------


async def test_any_online_replica_leads_and_recovers_if_allowed() -> None:
    for unclean, config in ((True, {}), (False, {"unclean.leader.election.enable": "true"})):
        async with world(1, 2, unclean=unclean) as w:
            await w.create("orders", [[1, 2]], config)
            await w.stop(2)
            await w.start(2)

            await w.stop(1)

            assert await w.stored("orders-0") == (2, 2, (2,))
            assert w.known("orders-0").recovering
            assert w.controller.partitions.unclean_elections == 1
            await w.check()


async def test_topic_override_forbids_against_the_default() -> None:
    async with world(1, 2, unclean=True) as w:
        await w.create("orders", [[1, 2]], {"unclean.leader.election.enable": "false"})
        await w.stop(2)
        await w.start(2)

        await w.stop(1)

        assert await w.stored("orders-0") == (NO_LEADER, 2, (1,))
        assert w.controller.partitions.unclean_elections == 0


async def test_allowing_by_topic_or_default_elects_waiting_partitions() -> None:
    async with world(1, 2) as w:
        for topic in ("orders", "audit"):
            await w.create(topic, [[1, 2]])
        await w.stop(2)
        await w.start(2)
        await w.stop(1)
        assert w.controller.snapshot().offline_partitions == 2

        await w.store.set_topic_config("orders", {"unclean.leader.election.enable": "true"})
        await settle()

        assert (await w.stored("orders-0"))[0] == 2
        assert (await w.stored("audit-0"))[0] == NO_LEADER

        await w.controller.set_unclean_leader_election(True)

        assert (await w.stored("audit-0"))[0] == 2
        await w.check()


async def test_requested_elections_have_results_per_partition() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2], [2, 1], [3, 1]])
        await w.stop(1)
        await w.start(1)
        await w.write_isr("orders-0", 1, 2)

        before = await w.stored("orders-0")
        dry = await w.controller.elect(ElectionKind.PREFERRED, dry_run=True)
        assert await w.stored("orders-0") == before
        results = await w.controller.elect(
            ElectionKind.PREFERRED,
            [TopicPartition.parse(name) for name in ("orders-2", "orders-0", "orders-1", "none-0")],
        )

        assert [(each.topic, each.partition, each.outcome, each.leader) for each in dry] == [
            ("orders", 0, "ok", 1),
            ("orders", 2, "failed", 1),
        ]
        assert [(each.partition, each.outcome, int(each.error)) for each in results] == [
            (2, "failed", 80),
            (0, "ok", 0),
            (1, "not_needed", 84),
            (0, "failed", 3),
        ]
        assert (await w.stored("orders-0"))[0] == 1
        await w.check()


# -- cluster default in the store --------------------------------------------------------------------------------------

ALLOWED = {"unclean.leader.election.enable": "true"}
FORBIDDEN = {"unclean.leader.election.enable": "false"}


async def test_allowing_by_cluster_default_respects_overrides() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        await w.create("strict", [[1, 2]], FORBIDDEN)
        await stop_last_in_sync(w)
        assert w.controller.snapshot().offline_partitions == 2

        await w.store.set_default_config(ALLOWED)
        await settle()

        assert await w.stored("orders-0") == (2, 3, (2,))
        assert w.known("orders-0").recovering
        assert (await w.stored("strict-0"))[0] == NO_LEADER
        assert w.controller.partitions.unclean_elections == 1
        await w.check()


async def test_cluster_default_holds_until_forbidden_or_removed() -> None:
    for taken_back in (FORBIDDEN, {}):
        async with world(1, 2) as w:
            await w.create("orders", [[1, 2]])
            await w.store.set_default_config(ALLOWED)
            await settle()
            await w.store.set_default_config(taken_back)
            await settle()

            await stop_last_in_sync(w)

            assert await w.stored("orders-0") == (NO_LEADER, 2, (1,))

            # The controller still notices changes after it was forbidden.
            await w.store.set_default_config(ALLOWED)
            await settle()

            assert await w.stored("orders-0") == (2, 3, (2,))
            await w.check()


async def test_setting_has_no_effect_on_partitions_with_live_leaders() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.forget()

        for config in (ALLOWED, {}, {"log.retention.ms": "1"}, ALLOWED, FORBIDDEN):
            await w.store.set_default_config(config)
            await settle()

        assert await w.stored("orders-0") == (1, 0, (1, 2))
        assert w.brokers.sent == []


async def test_cluster_default_overrides_the_own_setting() -> None:
    async with world(1, 2, unclean=True) as w:
        await w.create("orders", [[1, 2]])
        await w.store.set_default_config(FORBIDDEN)
        await settle()
        await stop_last_in_sync(w)
        assert (await w.stored("orders-0"))[0] == NO_LEADER

        await w.controller.set_unclean_leader_election(True)

        assert (await w.stored("orders-0"))[0] == NO_LEADER

        # Without a cluster default the own setting applies again.
        await w.store.set_default_config({"log.retention.ms": "1"})
        await settle()

        assert (await w.stored("orders-0"))[0] == 2


async def test_own_setting_applies_only_without_a_cluster_default() -> None:
    async with world(1, 2, unclean=True) as w:
        await w.create("orders", [[1, 2]])
        await w.store.set_default_config(ALLOWED)
        await settle()

        await w.controller.set_unclean_leader_election(False)
        assert w.controller.partitions.unclean.default
        await w.store.set_default_config({})
        await settle()
        await stop_last_in_sync(w)

        assert (await w.stored("orders-0"))[0] == NO_LEADER


async def test_invalid_cluster_default_is_logged_and_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(1, 2, unclean=True) as w:
        await w.create("orders", [[1, 2]])
        await w.store.set_default_config({"unclean.leader.election.enable": " False "})
        await settle()
        await stop_last_in_sync(w)
        assert (await w.stored("orders-0"))[0] == NO_LEADER

        await w.store.set_default_config({"unclean.leader.election.enable": "no"})
        await settle()

        assert (await w.stored("orders-0"))[0] == 2
        assert "unclean.leader.election.enable='no'" in caplog.text


async def test_no_election_while_unclean_election_stays_forbidden() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        await stop_last_in_sync(w)
        before = w.controller.snapshot().seq

        for config in ({"log.retention.ms": "1"}, FORBIDDEN):
            await w.store.set_default_config(config)
            await settle()
        await w.controller.set_unclean_leader_election(True)

        assert w.controller.snapshot().seq == before


@pytest.mark.parametrize(("own", "stored", "leader"), [(False, ALLOWED, 2), (True, FORBIDDEN, NO_LEADER)])
async def test_takeover_reads_the_cluster_default_before_elections(
    own: bool, stored: dict[str, str], leader: int
) -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        await w.stop(2)
        await w.start(2)
        w.controller.loop.controllership.stopping = True
        await w.controller.resign()
        await w.stop(1)
        await w.store.set_default_config(stored)
        second, _ = open_standby(w, 200, unclean_leader_election=own)
        async with second:
            await settle()

            assert second.is_active
            assert (await w.stored("orders-0"))[0] == leader

            # It notices the next change too.
            await w.store.set_default_config(ALLOWED)
            await settle()

            assert (await w.stored("orders-0"))[0] == 2


async def test_deposed_instance_uses_its_own_setting_until_takeover() -> None:
    async with world(1, 2) as w:
        await w.store.set_default_config(ALLOWED)
        await settle()
        assert w.controller.partitions.unclean.default
        second, _ = open_standby(w, 200, take_over=True)
        async with second:
            await settle()
            assert second.partitions.unclean.default
            assert not w.controller.partitions.unclean.default
            # It has no notification and reads nothing while it is a standby.
            await w.store.set_default_config(FORBIDDEN)
            await w.store.set_default_config(ALLOWED)
            await settle()
            assert not w.controller.partitions.unclean.default

        await settle()

        assert w.controller.cluster.fence.epoch == 3
        assert w.controller.partitions.unclean.default


async def test_unreadable_cluster_default_is_read_again() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        await stop_last_in_sync(w)
        real = w.controller.store.default_config

        async def broken() -> dict[str, str]:
            w.controller.store.default_config = real  # type: ignore[method-assign]
            raise ZeroDivisionError("a bug")

        w.controller.store.default_config = broken  # type: ignore[method-assign]
        await w.store.set_default_config(ALLOWED)
        await settle()
        assert (await w.stored("orders-0"))[0] == NO_LEADER

        await w.clock.advance(5_000)
        await w.sessions[2].keep_alive()
        await w.clock.advance(5_000)

        assert (await w.stored("orders-0"))[0] == 2
