"""Topics come, grow, vanish and come again; who leads them, and whether one may who was not in sync."""

import pytest

from kactl.errors import StoreUnavailable
from kactl.messages.events import DeletionsChanged
from kactl.model import NO_LEADER, Assignment, PartitionState, ReplicaState, TopicRef
from tests.support.clocks import settle
from tests.support.controller_harness import open_standby, stop_last_in_sync, world
from tests.support.scripted_store import fails_after

pytestmark = pytest.mark.anyio

GONE = StoreUnavailable("the answer was lost")
ALLOWED = {"unclean.leader.election.enable": "true"}
FORBIDDEN = {"unclean.leader.election.enable": "false"}


# -- they come ---------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(343)
async def test_the_first_leader_of_a_new_topic() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])

        assert await w.stored("t-0") == (1, 0, (1,))
        _, state = await w._stored("t-0")
        assert state.controller_epoch == 1


@pytest.mark.scenario(344)
async def test_of_a_new_topic_whoever_is_there_leads() -> None:
    async with world(2) as w:
        await w.create("t", [[1, 2]])

        assert await w.stored("t-0") == (2, 0, (2,))


@pytest.mark.scenario(393)
async def test_replicas_of_a_new_topic_are_online_even_on_a_dead_broker() -> None:
    async with world(1) as w:
        await w.create("t", [[2, 1]])

        assert w.known("t-0").replica_states == {1: ReplicaState.ONLINE, 2: ReplicaState.ONLINE}
        assert w.known("t-0").state is PartitionState.ONLINE
        assert await w.stored("t-0") == (1, 0, (1,))


# -- they grow ---------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(345)
async def test_an_added_partition_gets_its_first_leader() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])

        await w.grow("t", [1])

        assert await w.stored("t-1") == (1, 0, (1,))
        assert await w.stored("t-0") == (1, 0, (1,))


@pytest.mark.scenario(346)
async def test_an_added_partition_is_led_by_whoever_is_there() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.stop(1)

        await w.grow("t", [1, 2])

        assert await w.stored("t-1") == (2, 0, (2,))


@pytest.mark.scenario(389)
async def test_other_replicas_in_a_topics_entry_are_not_followed() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        w.brokers.forget()

        await w.store.write_assignment((await w.store.assignments(["t"])).topics[0], {0: Assignment((2,))}, None)
        await settle()

        assert w.known("t-0").replicas == (1,)
        assert await w.stored("t-0") == (1, 0, (1,))
        assert w.brokers.sent == []


@pytest.mark.scenario(390)
async def test_a_topic_that_is_being_deleted_does_not_grow() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])
        w.brokers.silent.add(1)
        await w.delete("t")

        await w.grow("t", [1])

        assert dict((await w.store.assignments(["t"])).items()) == {w.known("t-0").name: Assignment((1,))}
        assert w.controller.partition("t-1") is None


# -- they vanish -------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(391, 392)
@pytest.mark.parametrize("lost", ["nothing", "with it", "with its absence", "to another read"])
async def test_a_topic_created_again_replaces_the_one_before(lost: str) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1], [1]])
        old = w.controller.cluster.table.topic("t")
        if lost == "with it":
            w.script("topics", fails_after(GONE), fails_after(GONE))
        elif lost == "with its absence":
            # The only look at the list without the topic is one whose answer is lost.
            w.script("topics", fails_after(GONE))
            w.store.state.delete_topic("t")
            await settle()
        elif lost == "to another read":
            w.store.state.deletions.add("nothing")
            w.controller.loop.inbox.put(DeletionsChanged())
        w.store.state.delete_topic("t")
        await w.store.create_topic(TopicRef("t", bytes(15) + b"2"), {0: Assignment((2,))}, {})
        await w.wait(20_000)

        new = w.controller.cluster.table.topic("t")
        assert old is not None
        assert new is not None
        assert new.ref == w.store.state.topics["t"].ref != old.ref
        assert (w.known("t-0").replicas, w.known("t-0").leader) == ((2,), 2)
        assert len(w.controller.cluster.table) == 1
        await w.check()


async def test_a_topic_that_vanishes_is_forgotten_and_made_again_like_any_other() -> None:
    """Kafka keeps the states of its partitions, and a topic of the same name is stuck then: ONLINE to NEW is no move,
    and an election finds nothing that is stored."""
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        kept_by_kafka = w.known("t-0").state
        assert kept_by_kafka is PartitionState.ONLINE

        w.store.state.delete_topic("t")
        await settle()

        assert w.controller.topics() == []
        assert w.controller.partition("t-0") is None

        await w.create("t", [[2, 1]])

        assert await w.stored("t-0") == (2, 0, (1, 2))
        assert w.known("t-0").state is PartitionState.ONLINE
        assert w.brokers.told(1)["t-0"] == (2, 0, (1, 2), True)
        await w.check()


# -- unclean elections -------------------------------------------------------------------------------------------------


@pytest.mark.scenario(347, 348)
@pytest.mark.parametrize("unclean", [False, True])
async def test_a_partition_without_another_replica_has_no_leader_once_its_broker_is_gone(unclean: bool) -> None:
    async with world(1, 2, unclean=unclean) as w:
        await w.create("t", [[1]])

        await w.stop(1)

        assert await w.stored("t-0") == (NO_LEADER, 1, (1,))
        assert w.known("t-0").state is PartitionState.OFFLINE
        assert w.controller.partitions.unclean_elections == 0


@pytest.mark.scenario(350)
@pytest.mark.parametrize(("default", "override"), [(True, {}), (False, ALLOWED)], ids=["by default", "by topic"])
async def test_where_it_is_allowed_one_who_is_not_in_sync_leads(default: bool, override: dict[str, str]) -> None:
    async with world(1, 2, unclean=default) as w:
        await w.create("t", [[1, 2]], override)

        assert (await w.stored("t-0"))[::2] == (1, (1, 2))
        await stop_last_in_sync(w)

        assert (await w.stored("t-0"))[::2] == (2, (2,))
        assert w.known("t-0").recovering
        assert w.controller.partitions.unclean_elections == 1


@pytest.mark.scenario(351)
@pytest.mark.parametrize(("default", "override"), [(False, {}), (True, FORBIDDEN)], ids=["by default", "by topic"])
async def test_where_it_is_forbidden_the_last_in_sync_is_waited_for(default: bool, override: dict[str, str]) -> None:
    async with world(1, 2, unclean=default) as w:
        await w.create("t", [[1, 2]], override)

        assert (await w.stored("t-0"))[::2] == (1, (1, 2))
        await stop_last_in_sync(w)

        assert (await w.stored("t-0"))[::2] == (NO_LEADER, (1,))
        assert w.controller.partitions.unclean_elections == 0

        await w.start(1)

        assert (await w.stored("t-0"))[::2] == (1, (1,))


@pytest.mark.scenario(352)
async def test_allowing_it_for_a_topic_revives_what_waits() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        assert (await w.stored("t-0"))[::2] == (1, (1, 2))
        await stop_last_in_sync(w)
        assert (await w.stored("t-0"))[0] == NO_LEADER

        await w.store.set_topic_config("t", ALLOWED)
        await settle()

        assert (await w.stored("t-0"))[::2] == (2, (2,))
        assert w.controller.partitions.unclean_elections == 1


@pytest.mark.scenario(353)
async def test_allowing_and_forbidding_it_changes_nothing_while_the_leader_lives() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.forget()

        for config in (ALLOWED, FORBIDDEN, ALLOWED, {}):
            await w.store.set_topic_config("t", config)
            await settle()
        for allowed in (True, False):
            await w.controller.set_unclean_leader_election(allowed)

        assert await w.stored("t-0") == (1, 0, (1, 2))
        assert w.brokers.sent == []


async def test_an_instance_that_stands_by_looks_at_no_configuration() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        other, told = open_standby(w, 200)
        async with other:
            await w.store.set_topic_config("t", ALLOWED)
            await w.store.create_topic(TopicRef("u"), {0: Assignment((1,))}, {})
            await settle()

            assert told.sent == []
            assert w.known("u-0").leader == 1
