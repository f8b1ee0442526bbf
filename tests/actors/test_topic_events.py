"""Topics that are created, expanded, removed and recreated, their first leaders, and unclean elections."""

import pytest

from kactl.decide.messages.events import TopicDeletion
from kactl.model import NO_LEADER, Assignment, PartitionState, ReplicaState, TopicRef
from kactl.model.errors import StoreUnavailable
from tests.support.clocks import settle
from tests.support.controller_harness import open_standby, stop_last_in_sync, world
from tests.support.scripted_store import fails_after

pytestmark = pytest.mark.anyio

GONE = StoreUnavailable("the answer was lost")
ALLOWED = {"unclean.leader.election.enable": "true"}
FORBIDDEN = {"unclean.leader.election.enable": "false"}


# -- creation ----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(343)
async def test_first_leader_of_a_new_topic() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])

        assert await w.stored("t-0") == (1, 0, (1,))
        _, state = await w._stored("t-0")
        assert state.controller_epoch == 1


@pytest.mark.scenario(344)
async def test_first_live_replica_leads_a_new_topic() -> None:
    async with world(2) as w:
        await w.create("t", [[1, 2]])

        assert await w.stored("t-0") == (2, 0, (2,))


@pytest.mark.scenario(393)
async def test_replicas_of_a_new_topic_are_online_on_a_dead_broker() -> None:
    async with world(1) as w:
        await w.create("t", [[2, 1]])

        assert w.known("t-0").replica_states == {1: ReplicaState.ONLINE, 2: ReplicaState.ONLINE}
        assert w.known("t-0").state is PartitionState.ONLINE
        assert await w.stored("t-0") == (1, 0, (1,))


# -- partition expansion -----------------------------------------------------------------------------------------------


@pytest.mark.scenario(345)
async def test_added_partition_gets_its_first_leader() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])

        await w.grow("t", [1])

        assert await w.stored("t-1") == (1, 0, (1,))
        assert await w.stored("t-0") == (1, 0, (1,))


@pytest.mark.scenario(346)
async def test_first_live_replica_leads_an_added_partition() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.stop(1)

        await w.grow("t", [1, 2])

        assert await w.stored("t-1") == (2, 0, (2,))


@pytest.mark.scenario(389)
async def test_changed_replicas_of_existing_partitions_are_ignored() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        w.brokers.forget()

        await w.store.write_assignment((await w.store.assignments(["t"])).topics[0], {0: Assignment((2,))}, None)
        await settle()

        assert w.known("t-0").replicas == (1,)
        assert await w.stored("t-0") == (1, 0, (1,))
        assert w.brokers.sent == []


@pytest.mark.scenario(390)
async def test_topic_in_deletion_is_not_expanded() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])
        w.brokers.silent.add(1)
        await w.delete("t")

        await w.grow("t", [1])

        assert dict((await w.store.assignments(["t"])).items()) == {w.known("t-0").name: Assignment((1,))}
        assert w.controller.partition("t-1") is None


# -- removal -----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(391, 392)
@pytest.mark.parametrize("lost", ["nothing", "with it", "with its absence", "to another read"])
async def test_recreated_topic_replaces_the_earlier_one(lost: str) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1], [1]])
        old = w.controller.cluster.table.topic("t")
        if lost == "with it":
            w.script("topics", fails_after(GONE), fails_after(GONE))
        elif lost == "with its absence":
            # The only read of the list without the topic is one whose response is lost.
            w.script("topics", fails_after(GONE))
            w.store.state.delete_topic("t")
            await settle()
        elif lost == "to another read":
            w.store.state.deletions.add("nothing")
            w.controller.loop.inbox.put(TopicDeletion())
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


async def test_vanished_topic_is_forgotten_and_can_be_recreated() -> None:
    """Kafka keeps its partition states, and a topic of the same name is stuck: ONLINE to NEW is no transition, and
    an election finds no stored leadership."""
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
async def test_partition_with_one_replica_is_leaderless_without_it(unclean: bool) -> None:
    async with world(1, 2, unclean=unclean) as w:
        await w.create("t", [[1]])

        await w.stop(1)

        assert await w.stored("t-0") == (NO_LEADER, 1, (1,))
        assert w.known("t-0").state is PartitionState.OFFLINE
        assert w.controller.partitions.unclean_elections == 0


@pytest.mark.scenario(350)
@pytest.mark.parametrize(("default", "override"), [(True, {}), (False, ALLOWED)], ids=["by default", "by topic"])
async def test_out_of_sync_replica_leads_by_unclean_election(default: bool, override: dict[str, str]) -> None:
    async with world(1, 2, unclean=default) as w:
        await w.create("t", [[1, 2]], override)

        assert (await w.stored("t-0"))[::2] == (1, (1, 2))
        await stop_last_in_sync(w)

        assert (await w.stored("t-0"))[::2] == (2, (2,))
        assert w.known("t-0").recovering
        assert w.controller.partitions.unclean_elections == 1


@pytest.mark.scenario(351)
@pytest.mark.parametrize(("default", "override"), [(False, {}), (True, FORBIDDEN)], ids=["by default", "by topic"])
async def test_without_unclean_election_the_isr_is_awaited(default: bool, override: dict[str, str]) -> None:
    async with world(1, 2, unclean=default) as w:
        await w.create("t", [[1, 2]], override)

        assert (await w.stored("t-0"))[::2] == (1, (1, 2))
        await stop_last_in_sync(w)

        assert (await w.stored("t-0"))[::2] == (NO_LEADER, (1,))
        assert w.controller.partitions.unclean_elections == 0

        await w.start(1)

        assert (await w.stored("t-0"))[::2] == (1, (1,))


@pytest.mark.scenario(352)
async def test_allowing_unclean_election_for_a_topic_elects_at_once() -> None:
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
async def test_unclean_election_setting_has_no_effect_on_live_leaders() -> None:
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


async def test_standby_reads_no_configuration() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        other, told = open_standby(w, 200)
        async with other:
            await w.store.set_topic_config("t", ALLOWED)
            await w.store.create_topic(TopicRef("u"), {0: Assignment((1,))}, {})
            await settle()

            assert told.sent == []
            assert w.known("u-0").leader == 1
