"""Elections, and who allows unclean ones: a topic, what the store says for all brokers, or the instance itself."""

import pytest

from kactl.messages.admin import ElectionKind
from kactl.model import NO_LEADER, TopicPartition
from tests.support.clocks import settle
from tests.support.controller_harness import open_standby, stop_last_in_sync, world

pytestmark = pytest.mark.anyio


# -- elections ---------------------------------------------------------------------------------------------------------


async def test_where_it_is_allowed_anybody_who_is_online_leads_and_recovers() -> None:
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


async def test_an_override_forbids_what_the_default_allows() -> None:
    async with world(1, 2, unclean=True) as w:
        await w.create("orders", [[1, 2]], {"unclean.leader.election.enable": "false"})
        await w.stop(2)
        await w.start(2)

        await w.stop(1)

        assert await w.stored("orders-0") == (NO_LEADER, 2, (1,))
        assert w.controller.partitions.unclean_elections == 0


async def test_allowing_it_for_a_topic_or_by_default_revives_what_waits() -> None:
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


async def test_elections_on_request_answer_for_each_partition() -> None:
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


# -- what the store says for all brokers -------------------------------------------------------------------------------

ALLOWED = {"unclean.leader.election.enable": "true"}
FORBIDDEN = {"unclean.leader.election.enable": "false"}


async def test_allowing_it_for_all_brokers_revives_what_waits_and_an_override_still_forbids() -> None:
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


async def test_what_is_allowed_for_all_brokers_holds_until_it_is_forbidden_or_taken_back() -> None:
    for taken_back in (FORBIDDEN, {}):
        async with world(1, 2) as w:
            await w.create("orders", [[1, 2]])
            await w.store.set_default_config(ALLOWED)
            await settle()
            await w.store.set_default_config(taken_back)
            await settle()

            await stop_last_in_sync(w)

            assert await w.stored("orders-0") == (NO_LEADER, 2, (1,))

            # Forbidding did not make the controller deaf.
            await w.store.set_default_config(ALLOWED)
            await settle()

            assert await w.stored("orders-0") == (2, 3, (2,))
            await w.check()


async def test_while_a_leader_lives_nothing_changes_with_what_is_allowed() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.forget()

        for config in (ALLOWED, {}, {"log.retention.ms": "1"}, ALLOWED, FORBIDDEN):
            await w.store.set_default_config(config)
            await settle()

        assert await w.stored("orders-0") == (1, 0, (1, 2))
        assert w.brokers.sent == []


async def test_what_the_store_says_for_all_brokers_wins_over_the_instances_own_setting() -> None:
    async with world(1, 2, unclean=True) as w:
        await w.create("orders", [[1, 2]])
        await w.store.set_default_config(FORBIDDEN)
        await settle()
        await stop_last_in_sync(w)
        assert (await w.stored("orders-0"))[0] == NO_LEADER

        await w.controller.set_unclean_leader_election(True)

        assert (await w.stored("orders-0"))[0] == NO_LEADER

        # With nothing said in the store the own setting holds again.
        await w.store.set_default_config({"log.retention.ms": "1"})
        await settle()

        assert (await w.stored("orders-0"))[0] == 2


async def test_ones_own_setting_cannot_forbid_what_the_store_allows_and_holds_once_it_does_not() -> None:
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


async def test_a_value_that_is_no_boolean_is_logged_and_the_own_setting_holds(
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


async def test_nobody_is_looked_for_while_it_stays_forbidden() -> None:
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
async def test_a_new_controller_reads_what_is_set_for_all_brokers_before_it_elects(
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

            # And it hears of the next change.
            await w.store.set_default_config(ALLOWED)
            await settle()

            assert (await w.stored("orders-0"))[0] == 2


async def test_an_instance_that_was_deposed_goes_by_its_own_setting_until_it_rules_again() -> None:
    async with world(1, 2) as w:
        await w.store.set_default_config(ALLOWED)
        await settle()
        assert w.controller.partitions.unclean.default
        second, _ = open_standby(w, 200, take_over=True)
        async with second:
            await settle()
            assert second.partitions.unclean.default
            assert not w.controller.partitions.unclean.default
            # Nobody told it, and it asks nobody while it stands by.
            await w.store.set_default_config(FORBIDDEN)
            await w.store.set_default_config(ALLOWED)
            await settle()
            assert not w.controller.partitions.unclean.default

        await settle()

        assert w.controller.cluster.fence.epoch == 3
        assert w.controller.partitions.unclean.default


async def test_a_change_for_all_brokers_that_could_not_be_read_is_looked_at_again() -> None:
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
