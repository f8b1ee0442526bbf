"""AlterPartition requests. By default broker 1 leads t-0 under leader epoch 5, ISR {1, 2}, version 9."""

import pytest

from kactl.config.protocol_level import ProtocolLevel
from kactl.decide.messages.admin import ResignController
from kactl.decide.messages.broker import AlterPartitionReceived
from kactl.decide.messages.control import LeaderAndIsr, StopReplica, UpdateMetadata
from kactl.decide.messages.events import PartitionReassignmentIsrChange
from kactl.decide.messages.log import ReplicaEvent
from kactl.model import Assignment, Fence, Leadership, ReplicaState, TopicPartition, TopicRef
from kactl.model.errors import (
    ErrorCode,
    KactlError,
    NotController,
    StaleBrokerEpoch,
    StoreUnavailable,
    UnknownRecoveryState,
)
from kactl.stores.base import Committed, Leaderships, Names, Write
from kactl.stores.memory import MemoryStore
from tests.support.clocks import settle
from tests.support.controller_harness import CONTROLLER, World, partitions_of, world
from tests.support.scripted_store import fails, fails_after

from .one_partition import EPOCH, ID, T0, VERSION, epoch_of, isr_error, led_partition, proposal, propose, send_request

pytestmark = pytest.mark.anyio


async def stored_state(made: World, name: TopicPartition = T0) -> Leadership:
    state = (await made.store.leaderships(Names.of([name]))).one(0)
    assert state is not None
    return state


# -- accepted proposals ------------------------------------------------------------------------------------------------


@pytest.mark.scenario(288)
@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_unchanged_isr_succeeds_without_a_write(version: int) -> None:
    async with led_partition(isr=(1,), brokers=(1,), assignment=Assignment((1,))) as made:
        before = await stored_state(made)

        (result,) = await propose(made, proposal((1,)), version=version)

        assert result.error is ErrorCode.NONE
        assert result.leadership is not None
        assert result.leadership == before
        assert result.topic == (TopicRef("", ID) if version >= 2 else TopicRef("t"))
        assert await stored_state(made) == before


@pytest.mark.scenario(289)
async def test_topic_id_is_accepted_below_the_protocol_level_of_ids() -> None:
    async with led_partition(level=ProtocolLevel(2, 7, 2)) as made:
        (result,) = await propose(made, proposal((1,)), version=3)

        assert result.error is ErrorCode.NONE
        assert (await stored_state(made)).isr == (1,)


@pytest.mark.scenario(290)
async def test_repeated_proposal_is_written_once() -> None:
    async with world(1, 2) as made:
        await made.create("t", [[1, 2]])
        name = made.known("t-0").name
        (topic,) = made.controller.topics()

        answers = []
        for version in (0, 0, 1):
            (result,) = await propose(made, proposal((1,), version=version, leader_epoch=0, topic=topic))
            assert result.leadership is not None
            answers.append((result.error, result.leadership.isr, result.leadership.partition_epoch))

        assert answers == [(ErrorCode.NONE, (1,), 1)] * 3
        assert (await stored_state(made, name)).partition_epoch == 1
        await made.check()


@pytest.mark.scenario(306)
async def test_leader_can_end_its_recovery() -> None:
    async with led_partition(isr=(1,), recovering=True) as made:
        assert made.known("t-0").recovering

        (result,) = await propose(made, proposal((1,), recovering=False))

        assert result.error is ErrorCode.NONE
        now = await stored_state(made)
        assert result.leadership == now
        assert (now.leader, now.leader_epoch, now.isr, now.partition_epoch) == (1, EPOCH, (1,), VERSION + 1)
        assert not now.recovering


@pytest.mark.scenario(308)
async def test_isr_in_another_order_is_unchanged() -> None:
    """Kafka compares lists: it writes the ISR again, which only increments the version."""
    members = (2, 1)
    async with led_partition() as made:
        assert members != (await stored_state(made)).isr

        (result,) = await propose(made, proposal(members))

        assert result.error is ErrorCode.NONE
        assert result.leadership is not None
        assert set(result.leadership.isr) == set(members)
        assert result.leadership.partition_epoch == (await stored_state(made)).partition_epoch == VERSION


async def test_expanded_isr_keeps_leader_epoch_and_has_our_controller_epoch() -> None:
    async with led_partition(isr=(1,)) as made:
        (result,) = await propose(made, proposal((1, 2)))

        now = await stored_state(made)
        assert now == Leadership(1, EPOCH, (1, 2), VERSION + 1, made.controller.snapshot().epoch)
        assert result.leadership == now


async def test_broker_that_is_not_assigned_does_not_join_the_isr() -> None:
    async with led_partition(brokers=(1, 2, 3)) as made:
        (result,) = await propose(made, proposal((1, 2, 3)))
        await settle()

        assert result.error is ErrorCode.INELIGIBLE_REPLICA
        assert (await stored_state(made)).isr == (1, 2)
        assert made.known("t-0").replicas == (1, 2)


async def test_unassigned_isr_member_that_a_leader_wrote_is_stopped() -> None:
    async with led_partition(brokers=(1, 2, 3), assignment=Assignment((1, 2))) as made:
        await made.write_isr("t-0", 1, 3)  # as a leader at a level before proposals does
        await settle()

        assert (await stored_state(made)).isr == (1,)
        assert made.known("t-0").replicas == (1, 2)
        assert made.brokers.of(3, StopReplica)
        assert not made.controller.cluster.reassigning
        moves, _ = made.controller.history.read(0, limit=100, kinds=("replica",))
        states = [
            (move.from_state, move.to_state) for move in moves if isinstance(move, ReplicaEvent) and move.broker == 3
        ]
        # Each move begins where the one before it ended.
        assert [before for before, _ in states] == [ReplicaState.ABSENT, *(after for _, after in states[:-1])]


async def test_last_of_two_proposals_for_a_partition_wins() -> None:
    async with led_partition(brokers=(1, 2, 3), assignment=Assignment((1, 2, 3)), isr=(1, 2, 3)) as made:
        results = await propose(made, proposal((1,)), proposal((1, 2), partition=7), proposal((1, 3)))

        assert [each.error for each in results] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NONE,
        ]
        assert results[0].leadership == results[2].leadership == await stored_state(made)
        assert (await stored_state(made)).isr == (1, 3)


async def test_one_request_proposes_isrs_of_ten_thousand_partitions() -> None:
    count = 10_000
    async with world(1, 2) as made:
        await made.create("many", [[1, 2]] * count)
        (topic,) = made.controller.topics()
        many = [proposal((1,), partition=at, version=0, leader_epoch=0, topic=topic) for at in range(count)]
        made.brokers.forget()

        results = await propose(made, *reversed(many))

        assert {each.error for each in results} == {ErrorCode.NONE}
        assert [each.partition for each in results] == list(reversed(range(count)))
        assert len(made.controller.cluster.table.under_replicated()) == count
        for broker in (1, 2):  # one request per broker with all partitions
            (told,) = made.brokers.of(broker)
            assert isinstance(told, UpdateMetadata)
            assert len(told.states) == count


# -- authorised brokers ------------------------------------------------------------------------------------------------


@pytest.mark.scenario(291, 307)
async def test_unknown_broker_epoch_rejects_the_whole_request() -> None:
    async with led_partition() as made:
        for broker, epoch in ((1, epoch_of(made, 1) - 1), (1, epoch_of(made, 1) + 1), (99, 1)):
            with pytest.raises(StaleBrokerEpoch) as refused:
                await propose(made, proposal((1,)), broker=broker, broker_epoch=epoch)
            assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH

        assert (await stored_state(made)).partition_epoch == VERSION
        assert made.brokers.sent == []


@pytest.mark.scenario(312)
async def test_inactive_controller_rejects_proposals() -> None:
    async with led_partition() as made:
        epoch = epoch_of(made, 1)
        await made.store.contest(7, take_over=True)
        await settle()
        assert not made.controller.is_active

        with pytest.raises(NotController) as refused:
            await propose(made, proposal((1,)), broker_epoch=epoch)

        assert (refused.value.code, refused.value.active_id) == (ErrorCode.NOT_CONTROLLER, 7)
        assert (await stored_state(made)).partition_epoch == VERSION


async def test_proposal_of_a_follower_is_rejected() -> None:
    """Kafka takes the sender for the leader. If all epochs match, it writes the follower's proposal with the
    follower as leader, under the same leader epoch, while the real leader continues to lead."""
    async with led_partition() as made:
        state = await stored_state(made)
        asked = proposal((1, 2))
        assert (asked.leader_epoch, asked.partition_epoch) == (
            state.leader_epoch,
            state.partition_epoch,
        )
        assert state.leader != 2

        (result,) = await propose(made, asked, broker=2)

        assert result.error is ErrorCode.INVALID_REQUEST
        assert await stored_state(made) == state


@pytest.mark.parametrize("isr", [(), (2,)], ids=["empty", "without its leader"])
async def test_isr_without_its_leader_is_rejected(isr: tuple[int, ...]) -> None:
    """Kafka writes it: the next election then finds no in-sync replica, or an out-of-sync leader continues to lead."""
    async with led_partition() as made:
        assert await isr_error(made, isr) is ErrorCode.INVALID_REQUEST


# -- rejected proposals ------------------------------------------------------------------------------------------------


@pytest.mark.scenario(292, 293)
async def test_unknown_partition_is_rejected_alone() -> None:
    async with led_partition() as made:
        stranger = TopicRef("stranger", b"s" * 16)
        asked = (proposal((1,)), proposal((1,), topic=stranger), proposal((1,), partition=1))

        by_id = await propose(made, *asked, version=3)
        by_name = await propose(made, *asked, version=1)

        assert [each.error.name for each in by_id] == ["NONE", "UNKNOWN_TOPIC_ID", "UNKNOWN_TOPIC_OR_PARTITION"]
        assert [each.error.name for each in by_name] == [
            "NONE",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "UNKNOWN_TOPIC_OR_PARTITION",
        ]


OUTDATED = [
    pytest.param({"version": VERSION - 1}, ErrorCode.INVALID_UPDATE_VERSION, id="an older version"),
    pytest.param({"version": VERSION + 1}, ErrorCode.NOT_CONTROLLER, id="a later version"),
    pytest.param({"leader_epoch": EPOCH - 1}, ErrorCode.FENCED_LEADER_EPOCH, id="an older leader epoch"),
    pytest.param({"leader_epoch": EPOCH + 1}, ErrorCode.NOT_CONTROLLER, id="a later leader epoch"),
]


@pytest.mark.scenario(294, 295, 296, 297, 300)
@pytest.mark.parametrize(("knows", "expected"), OUTDATED)
async def test_stale_epoch_is_rejected_and_newer_epoch_gets_not_controller(
    knows: dict[str, int], expected: ErrorCode
) -> None:
    async with led_partition() as made:
        assert await isr_error(made, (1,), **knows) is expected
        # Also if the recovery state could not be accepted either.
        assert await isr_error(made, (1, 2), recovering=True, **knows) is expected
        assert await isr_error(made, (1,), recovering=True, **knows) is expected


@pytest.mark.scenario(298, 299)
@pytest.mark.parametrize("isr", [(1, 2), (1,)])
async def test_recovered_leader_cannot_propose_recovery_again(isr: tuple[int, ...]) -> None:
    async with led_partition() as made:
        assert await isr_error(made, isr, recovering=True) is ErrorCode.INVALID_REQUEST


@pytest.mark.scenario(301)
async def test_unknown_recovery_state_fails_the_whole_request() -> None:
    async with led_partition() as made:
        with pytest.raises(UnknownRecoveryState, match="no leader recovery state 25") as refused:
            await propose(made, proposal((1,)), proposal((1,), recovering=25))

        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await stored_state(made)).partition_epoch == VERSION


@pytest.mark.scenario(302)
@pytest.mark.parametrize(
    ("version", "expected"), [(3, ErrorCode.INELIGIBLE_REPLICA), (1, ErrorCode.OPERATION_NOT_ATTEMPTED)]
)
async def test_absent_follower_cannot_be_in_sync(version: int, expected: ErrorCode) -> None:
    async with world(1, 2) as made:
        await made.create("t", [[1, 2]])
        (topic,) = made.controller.topics()
        await made.stop(2)
        known = made.known("t-0")
        assert known.isr == (1,)
        asked = proposal(version=known.partition_epoch, leader_epoch=known.leader_epoch, topic=topic)

        (result,) = await propose(made, asked, version=version)
        assert result.error is expected
        assert await made.stored("t-0") == (1, known.leader_epoch, (1,))

        await made.start(2)
        (result,) = await propose(made, asked, version=version)
        assert result.error is ErrorCode.NONE
        assert await made.stored("t-0") == (1, known.leader_epoch, (1, 2))
        await made.check()


async def test_isr_with_a_stale_follower_epoch_is_rejected() -> None:
    """The follower was in sync, lost its disk and registered again; then the older proposal arrives."""
    async with world(1, 2) as made:
        await made.create("t", [[1, 2]])
        (topic,) = made.controller.topics()
        before = epoch_of(made, 2)
        await made.start(2)
        known = made.known("t-0")
        assert (known.leader, known.isr) == (1, (1,))
        now = epoch_of(made, 2)
        assert now > before

        async def answer(*broker_epochs: int) -> ErrorCode:
            columns = {"version": known.partition_epoch, "leader_epoch": known.leader_epoch, "topic": topic}
            (result,) = await propose(made, proposal(broker_epochs=broker_epochs, **columns))  # type: ignore[arg-type]
            return result.error

        assert await answer(epoch_of(made, 1), before) is ErrorCode.INELIGIBLE_REPLICA
        assert await made.stored("t-0") == (1, known.leader_epoch, (1,))

        assert await answer(epoch_of(made, 1), now) is ErrorCode.NONE
        assert await made.stored("t-0") == (1, known.leader_epoch, (1, 2))
        await made.check()


async def test_stale_isr_member_rejects_its_partition_only() -> None:
    async with led_partition(isr=(1,), partitions=2) as made:
        stale = proposal((1, 2), broker_epochs=(epoch_of(made, 1), epoch_of(made, 2) - 1))
        right = proposal((1, 2), partition=1, broker_epochs=(epoch_of(made, 1), epoch_of(made, 2)))

        results = await propose(made, stale, right)

        assert [result.error for result in results] == [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.NONE]
        assert (await stored_state(made)).isr == (1,)
        assert (await stored_state(made, TopicPartition("t", 1))).isr == (1, 2)


async def test_broker_in_shutdown_is_not_added_to_the_isr() -> None:
    async with led_partition(isr=(1,)) as made:
        made.controller.cluster.mark_shutting_down(2)

        assert await isr_error(made, (1, 2)) is ErrorCode.INELIGIBLE_REPLICA


# -- leaders elected uncleanly -----------------------------------------------------------------------------------------


async def elect_uncleanly(made: World) -> TopicRef:
    """Broker 1 leads t-0 again although it was out of sync."""
    await made.create("t", [[1, 2]], {"unclean.leader.election.enable": "true"})
    await made.stop(1)
    assert await made.stored("t-0") == (2, 1, (2,))
    await made.stop(2)
    assert await made.stored("t-0") == (-1, 2, (2,))
    await made.start(1)
    (topic,) = made.controller.topics()
    return topic


@pytest.mark.scenario(303)
async def test_uncleanly_elected_leader_recovers() -> None:
    async with world(1, 2) as made:
        await elect_uncleanly(made)

        now = await stored_state(made)
        assert (now.leader, now.leader_epoch, now.isr, now.recovering) == (1, 3, (1,), True)
        await made.check()


@pytest.mark.scenario(304, 305)
async def test_recovering_leader_cannot_expand_the_isr() -> None:
    async with world(1, 2) as made:
        topic = await elect_uncleanly(made)
        await made.start(2)
        now = await stored_state(made)
        version, epoch = now.partition_epoch, now.leader_epoch

        for broker, broker_epoch in ((1, epoch_of(made, 1) - 1), (99, 1)):
            with pytest.raises(StaleBrokerEpoch):
                await propose(made, proposal((1,), topic=topic), broker=broker, broker_epoch=broker_epoch)
        refused = []
        for isr, recovering in (((1,), False), ((1, 2), False), ((1, 2), True)):
            for version_off, epoch_off in ((-1, 0), (1, 0), (0, -1), (0, 1)):
                asked = proposal(
                    isr,
                    version=version + version_off,
                    leader_epoch=epoch + epoch_off,
                    recovering=recovering,
                    topic=topic,
                )
                refused.append((await propose(made, asked))[0].error)
        both = proposal((1, 2), version=version, leader_epoch=epoch, recovering=True, topic=topic)
        refused.append((await propose(made, both))[0].error)

        each = [
            ErrorCode.INVALID_UPDATE_VERSION,
            ErrorCode.NOT_CONTROLLER,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.NOT_CONTROLLER,
        ]
        assert refused == each * 3 + [ErrorCode.INVALID_REQUEST]
        assert await stored_state(made) == now
        await made.check()


# -- requests to brokers and consequences ------------------------------------------------------------------------------


@pytest.mark.scenario(310)
async def test_brokers_receive_accepted_and_rejected_partitions() -> None:
    async with led_partition(partitions=3) as made:
        results = await propose(made, proposal((1,), partition=0), proposal((1,), partition=2, version=1))

        assert [each.error.name for each in results] == ["NONE", "INVALID_UPDATE_VERSION"]
        for broker in (1, 2):
            (told,) = made.brokers.of(broker)
            assert isinstance(told, UpdateMetadata)
            assert partitions_of(told) == ["t-0", "t-2"]
            assert told.states.partition_epoch.tolist() == [VERSION + 1, VERSION]
        assert made.brokers.of(1, LeaderAndIsr) == []


async def test_unknown_partition_is_not_sent_to_brokers() -> None:
    async with led_partition() as made:
        await propose(made, proposal((1,), partition=5))

        assert made.brokers.sent == []


@pytest.mark.scenario(311)
async def test_leader_gets_its_response_before_a_reassignment_completes() -> None:
    moving = Assignment((3, 1, 2), adding=(3,), removing=(2,))
    async with led_partition(assignment=moving, isr=(1, 2), brokers=(1, 2, 3)) as made:
        state = await stored_state(made)
        found = made.controller.hub.controller(CONTROLLER)
        assert found is not None
        asked = proposal((1, 2, 3), version=state.partition_epoch, leader_epoch=state.leader_epoch)

        (result,) = await found(AlterPartitionReceived(1, epoch_of(made, 1), (asked,)))
        held = dict((await made.store.assignments(["t"])).items())
        assert (result.error, held[T0]) == (ErrorCode.NONE, moving)  # response sent, no other effect yet
        await settle()

        held = dict((await made.store.assignments(["t"])).items())
        assert held[T0] == Assignment((3, 1))
        assert set((await stored_state(made)).isr) == {1, 3}
        assert T0 not in made.controller.cluster.reassigning


async def test_only_accepted_proposals_check_reassignments() -> None:
    moving = Assignment((3, 1, 2), adding=(3,), removing=(2,))
    async with led_partition(assignment=moving, isr=(1, 2), brokers=(1, 2, 3), partitions=2) as made:
        state = await stored_state(made)
        looked_at: list[object] = []
        put_once = made.controller.loop.inbox.put_once

        def note(event: object) -> None:
            looked_at.append(event)
            put_once(event)  # type: ignore[arg-type]

        made.controller.loop.inbox.put_once = note  # type: ignore[method-assign, assignment]
        stale = proposal((1,), partition=1, version=state.partition_epoch - 1, leader_epoch=state.leader_epoch)
        same = proposal((1, 2), version=state.partition_epoch - 1, leader_epoch=state.leader_epoch)
        await propose(made, stale, same)

        assert looked_at == [PartitionReassignmentIsrChange(T0)]  # an unchanged ISR counts too, a rejected one does not


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(309)
async def test_rejected_write_is_read_back_and_not_retried() -> None:
    """Kafka keeps its outdated state and rejects all proposals of the leader until the next election."""
    commits = []

    class Noting(MemoryStore):
        async def commit(self, write: Write, fence: Fence) -> Committed:
            commits.append(write)
            return await super().commit(write, fence)

    async with led_partition(make_store=lambda store: Noting(store.state, clock=store._clock)) as made:
        commits.clear()
        state = await stored_state(made)
        assert await made.store.write_isr(T0, state, expected=VERSION) == VERSION + 1  # without the controller

        assert await isr_error(made, (1,)) is ErrorCode.INVALID_UPDATE_VERSION
        assert len(commits) == 1
        assert made.known("t-0").partition_epoch == VERSION + 1
        (told,) = made.brokers.of(1)
        assert isinstance(told, UpdateMetadata)
        assert told.states.partition_epoch.tolist() == [VERSION + 1]

        (result,) = await propose(made, proposal((1,), version=VERSION + 1))
        assert result.error is ErrorCode.NONE


async def test_leader_epoch_found_by_a_proposal_is_sent_to_brokers() -> None:
    """The commit for the failure of broker 3 stored it without a response. It is known before that commit is
    retried."""
    async with world(1, 2, 3) as made:
        await made.create("t", [[1, 2, 3]])
        (topic,) = made.controller.topics()
        made.script("commit", fails_after(StoreUnavailable("gone")))
        made.script("leaderships", fails(StoreUnavailable("gone")))
        await made.stop(3)
        known = made.known("t-0")
        assert await made.stored("t-0") == (1, known.leader_epoch + 1, (1, 2))
        asked = proposal((1, 2), version=known.partition_epoch, leader_epoch=known.leader_epoch, topic=topic)
        (result,) = await propose(made, asked)
        assert result.error is ErrorCode.INVALID_UPDATE_VERSION
        assert made.known("t-0").leader_epoch == known.leader_epoch + 1
        assert made.brokers.told(1)["t-0"][1] == known.leader_epoch

        await made.start(3)  # its failure needs no further write
        await made.wait(12_000)

        for broker in (1, 2):
            assert made.brokers.told(broker)["t-0"][:3] == (1, known.leader_epoch + 1, (1, 2))
        await made.check()


async def test_newer_version_of_a_leader_is_read_before_the_decision() -> None:
    async with led_partition() as made:
        state = await stored_state(made)
        assert await made.store.write_isr(T0, state, expected=VERSION) == VERSION + 1

        (result,) = await propose(made, proposal((1,), version=VERSION + 1))

        assert result.error is ErrorCode.NONE
        assert (await stored_state(made)).partition_epoch == VERSION + 2


class Unsure(MemoryStore):
    """Executes one call but loses its response; then reads fail a given number of times."""

    unknown_outcomes = False
    blind = 0

    async def commit(self, write: Write, fence: Fence) -> Committed:
        committed = await super().commit(write, fence)
        if self.unknown_outcomes:
            self.unknown_outcomes = False
            raise StoreUnavailable("the connection broke")
        return committed

    async def leaderships(self, names: Names) -> Leaderships:
        if self.blind and not self.unknown_outcomes:
            self.blind -= 1
            raise StoreUnavailable("the connection is broken")
        return await super().leaderships(names)


async def test_write_with_unknown_outcome_is_read_back() -> None:
    async with led_partition(make_store=lambda store: Unsure(store.state, clock=store._clock)) as made:
        made.controller.store.unknown_outcomes = True  # type: ignore[attr-defined]

        (result,) = await propose(made, proposal((1,)))

        assert (result.error, result.leadership) == (ErrorCode.NONE, await stored_state(made))
        assert made.known("t-0").partition_epoch == VERSION + 1


async def test_unreported_write_is_found_by_the_next_proposal() -> None:
    async with led_partition(make_store=lambda store: Unsure(store.state, clock=store._clock)) as made:
        store = made.controller.store
        store.unknown_outcomes, store.blind = True, 1  # type: ignore[attr-defined]
        (result,) = await propose(made, proposal((1,)))
        assert result.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert made.known("t-0").partition_epoch == VERSION

        (result,) = await propose(made, proposal((1,)))

        assert (result.error, result.leadership) == (ErrorCode.NONE, await stored_state(made))
        assert (await stored_state(made)).partition_epoch == VERSION + 1


@pytest.mark.scenario(313)
async def test_fenced_controller_returns_not_controller_and_resigns() -> None:
    """Kafka returns UNKNOWN_SERVER_ERROR, so that the leader retries with the same controller, and stays active
    until another signal arrives; the assertions check the moment at which it still is active."""
    active_when_fenced: list[bool] = []

    class Fenced(MemoryStore):
        fencing = False

        async def commit(self, write: Write, fence: Fence) -> Committed:
            if self.fencing:
                await made.store.contest(7, take_over=True)
                active_when_fenced.append(made.controller.is_active)
            return await super().commit(write, fence)

    async with led_partition(make_store=lambda store: Fenced(store.state, clock=store._clock)) as made:
        made.controller.store.fencing = True  # type: ignore[attr-defined]
        before = await stored_state(made)

        with pytest.raises(KactlError) as refused:
            await propose(made, proposal((1,)))

        assert isinstance(refused.value, NotController)
        assert refused.value.active_id == 7
        assert active_when_fenced == [True]
        assert not made.controller.is_active
        assert await stored_state(made) == before
        assert made.brokers.sent == []


async def test_queued_proposal_is_answered_when_the_controller_resigns() -> None:
    """Kafka drops it, and the broker waits until its request times out."""
    async with led_partition() as made:
        found = made.controller.hub.controller(CONTROLLER)
        assert found is not None
        asked = AlterPartitionReceived(1, epoch_of(made, 1), (proposal((1,)),))
        made.controller.loop.inbox.put(ResignController(stop=True))

        with pytest.raises(NotController):
            await found(asked)

        assert await send_request(made, ResignController()) is None
