"""Reports of followers to leaders: which are sent, which count, and how a loss is repaired."""

from collections.abc import Callable

import numpy as np
import pytest

from kactl.decide.messages.following import FollowerReports, FollowerReportsRequested, PeerMessage
from kactl.decide.state.rows import BrokerSet
from kactl.model import NO_EPOCH, TopicPartition
from kactl.participant.followers import Followers
from kactl.participant.following import Following
from kactl.participant.hosted_replicas import HostedReplicas, Role
from kactl.participant.lagging_replicas import LAG_MS
from kactl.stores.base import Names
from kactl.transports.memory import MemoryHub
from tests.support.clocks import ManualClock, settle
from tests.support.control_requests import BILLS_0, ORDERS_0, ORDERS_1, StateRow, ints, states, update_metadata

from .conftest import Network
from .test_isr import isr, stored_isr_group

pytestmark = pytest.mark.anyio

LEADER, FOLLOWER = 1, 2
EPOCH = 70


class Follower:
    """Hosted replicas of broker 2, and the messages that it sends."""

    def __init__(self) -> None:
        self.sent: list[FollowerReports] = []
        self.hosted = HostedReplicas()
        self.epoch = EPOCH
        self.live = {LEADER, FOLLOWER, 3}
        self.following = Following(
            FOLLOWER, self.hosted, epoch=lambda: self.epoch, live=lambda: BrokerSet(self.live), send=self._send
        )

    def _send(self, message: PeerMessage) -> None:
        assert isinstance(message, FollowerReports)
        self.sent.append(message)

    def follow(self, *rows: StateRow) -> None:
        self.hosted.apply(states(*rows), np.ones(len(rows), np.bool_), Role.FOLLOWER)
        self.following.update()

    def row(self, name: TopicPartition) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
        return np.array([self.hosted.index.find_one(name)], np.intp)


class Leader:
    """Broker 1, its leaderships, and its requests."""

    def __init__(self, *rows: StateRow) -> None:
        self.clock = ManualClock()
        self.requested: list[FollowerReportsRequested] = []
        self.known_epochs: dict[int, int] = {}
        self.hosted = HostedReplicas()
        self.followers = Followers(
            LEADER,
            self.hosted,
            clock=self.clock,
            epoch_of=lambda broker: self.known_epochs.get(broker, NO_EPOCH),
            send=self._send,
            lag_ms=LAG_MS,
        )
        self.lead(*rows)

    def _send(self, message: PeerMessage) -> None:
        assert isinstance(message, FollowerReportsRequested)
        self.requested.append(message)

    def lead(self, *rows: StateRow) -> None:
        self.hosted.apply(states(*rows), np.ones(len(rows), np.bool_), Role.LEADER)

    def has(self, name: TopicPartition, *, leader_epoch: int = 0) -> bool:
        return bool(self.followers.follows(FOLLOWER, Names.of([name]), ints([leader_epoch]))[0])


def rows_of(report: FollowerReports) -> dict[TopicPartition, int]:
    return dict(zip(report.names, report.leader_epoch.tolist(), strict=True))


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_report_contains_the_changes_since_the_last_one() -> None:
    follower = Follower()

    follower.follow(StateRow(ORDERS_0), StateRow(BILLS_0))
    follower.follow(StateRow(ORDERS_1))
    follower.follow(StateRow(ORDERS_0, leader_epoch=1))

    assert [(each.to, each.base, each.generation, rows_of(each)) for each in follower.sent] == [
        (LEADER, 0, 1, {ORDERS_0: 0, BILLS_0: 0}),
        (LEADER, 1, 2, {ORDERS_1: 0}),
        (LEADER, 2, 3, {ORDERS_0: 1}),
    ]
    assert {each.broker_epoch for each in follower.sent} == {EPOCH}


def test_earlier_leader_learns_that_it_is_not_followed_any_more() -> None:
    follower = Follower()
    follower.follow(StateRow(ORDERS_0))

    follower.follow(StateRow(ORDERS_0, leader=3, leader_epoch=1))

    reported = {each.to: (each.base, rows_of(each)) for each in follower.sent[1:]}
    assert reported == {LEADER: (1, {ORDERS_0: NO_EPOCH}), 3: (0, {ORDERS_0: 1})}


@pytest.mark.parametrize("end", ["stop", "fail", "leader not live"])
def test_end_of_following_is_reported(end: str) -> None:
    follower = Follower()
    follower.follow(StateRow(ORDERS_0), StateRow(ORDERS_1))

    match end:
        case "stop":
            follower.following.forget(follower.row(ORDERS_0))
            follower.hosted.remove(follower.row(ORDERS_0), ints([0]), controller_epoch=1)
        case "fail":
            follower.hosted.fail([ORDERS_0])
        case _:
            follower.live.remove(LEADER)
    follower.following.update()

    ended = {ORDERS_0: NO_EPOCH} if end != "leader not live" else {ORDERS_0: NO_EPOCH, ORDERS_1: NO_EPOCH}
    assert [rows_of(each) for each in follower.sent[1:]] == [ended]


def test_row_of_a_deleted_partition_is_reported_for_its_next_one() -> None:
    follower = Follower()
    follower.follow(StateRow(ORDERS_0))
    follower.following.forget(follower.row(ORDERS_0))
    follower.hosted.remove(follower.row(ORDERS_0), ints([0]), controller_epoch=1)

    follower.follow(StateRow(BILLS_0))

    assert rows_of(follower.sent[-1]) == {BILLS_0: 0}


def test_unchanged_state_is_reported_by_its_number() -> None:
    follower = Follower()
    follower.follow(StateRow(ORDERS_0))
    follower.following.update()
    assert len(follower.sent) == 1

    follower.following.repeat()

    assert [(each.base, each.generation, rows_of(each)) for each in follower.sent[1:]] == [(1, 1, {})]


def test_unregistered_broker_reports_nothing() -> None:
    follower = Follower()
    follower.epoch = NO_EPOCH

    follower.follow(StateRow(ORDERS_0))
    follower.following.requested(FollowerReportsRequested(LEADER, FOLLOWER, NO_EPOCH, 0))

    assert follower.sent == []


@pytest.mark.parametrize(("epoch", "generation", "base"), [(EPOCH, 2, 2), (EPOCH, 1, 0), (EPOCH - 1, 2, 0)])
def test_request_is_answered_with_what_the_leader_does_not_have(epoch: int, generation: int, base: int) -> None:
    follower = Follower()
    follower.follow(StateRow(ORDERS_0))
    follower.follow(StateRow(ORDERS_1))

    follower.following.requested(FollowerReportsRequested(LEADER, FOLLOWER, epoch, generation))

    everything = {} if base else {ORDERS_0: 0, ORDERS_1: 0}
    assert (follower.sent[-1].base, rows_of(follower.sent[-1])) == (base, everything)


# -- what counts -------------------------------------------------------------------------------------------------------


def reporting(leader: Leader) -> Follower:
    follower = Follower()
    follower.follow(StateRow(ORDERS_0))
    assert leader.followers.receive(follower.sent[-1])
    return follower


def test_report_counts_for_the_leader_epoch_that_it_names() -> None:
    leader = Leader(StateRow(ORDERS_0))
    reporting(leader)

    assert leader.has(ORDERS_0)
    assert not leader.has(ORDERS_0, leader_epoch=1)
    assert not leader.has(ORDERS_1)


def test_report_counts_for_the_registration_that_it_names() -> None:
    leader = Leader(StateRow(ORDERS_0))
    follower = reporting(leader)
    leader.known_epochs[FOLLOWER] = EPOCH
    assert leader.has(ORDERS_0)
    assert leader.followers.epoch_of(FOLLOWER) == EPOCH

    leader.known_epochs[FOLLOWER] = EPOCH + 1
    assert not leader.has(ORDERS_0)
    assert leader.followers.epoch_of(FOLLOWER) == EPOCH

    again = Follower()
    again.epoch = EPOCH + 1
    again.follow(StateRow(ORDERS_0))
    assert leader.followers.receive(again.sent[-1])
    assert not leader.followers.receive(follower.sent[-1])  # of the earlier registration, and late
    assert leader.has(ORDERS_0)
    assert leader.followers.epoch_of(FOLLOWER) == EPOCH + 1


def test_report_to_another_leader_is_ignored() -> None:
    leader, follower = Leader(StateRow(ORDERS_0)), Follower()
    follower.follow(StateRow(ORDERS_0, leader=3))

    assert not leader.followers.receive(follower.sent[-1])
    assert not leader.has(ORDERS_0)


def test_report_from_before_the_leadership_counts_once_it_is_confirmed() -> None:
    leader = Leader()
    follower = reporting(leader)

    leader.lead(StateRow(ORDERS_0))
    assert not leader.has(ORDERS_0)

    leader.followers.request([LEADER, FOLLOWER])
    assert leader.requested == [FollowerReportsRequested(LEADER, FOLLOWER, EPOCH, 1)]
    follower.following.requested(leader.requested[-1])
    assert leader.followers.receive(follower.sent[-1])
    assert leader.has(ORDERS_0)


async def test_report_counts_until_two_more_are_missing() -> None:
    leader = Leader(StateRow(ORDERS_0))
    follower = reporting(leader)

    await leader.clock.advance(LAG_MS / 2)
    assert leader.has(ORDERS_0)
    await leader.clock.advance(1)
    assert not leader.has(ORDERS_0)

    follower.following.repeat()
    assert leader.followers.receive(follower.sent[-1])
    assert leader.has(ORDERS_0)


def test_follower_behind_does_not_count_until_it_has_caught_up() -> None:
    leader = Leader(StateRow(ORDERS_0))
    follower = reporting(leader)

    for caught_up in (False, True):
        follower.following.report(ORDERS_0, 12, caught_up=caught_up)
        assert leader.followers.receive(follower.sent[-1])
        assert leader.has(ORDERS_0) == caught_up
    assert follower.sent[-1].position.tolist() == [12]


def test_report_ahead_of_its_order_is_sent_with_it() -> None:
    leader = Leader(StateRow(ORDERS_0, leader_epoch=1))
    follower = reporting(leader)

    follower.following.report(ORDERS_0, 12, caught_up=False, epoch=1)
    sent = len(follower.sent)
    follower.follow(StateRow(ORDERS_0, leader_epoch=1))

    assert len(follower.sent) == sent + 1
    assert (follower.sent[-1].position.tolist(), follower.sent[-1].caught_up.tolist()) == ([12], [False])


def test_report_of_an_earlier_followership_is_ignored() -> None:
    leader = Leader(StateRow(ORDERS_0, leader_epoch=1))
    follower = reporting(leader)
    follower.follow(StateRow(ORDERS_0, leader_epoch=1))
    sent = len(follower.sent)

    follower.following.report(ORDERS_0, 12, caught_up=False, epoch=0)

    assert len(follower.sent) == sent


def test_gap_between_reports_makes_the_leader_request_everything() -> None:
    leader = Leader(StateRow(ORDERS_0), StateRow(ORDERS_1))
    follower = reporting(leader)
    follower.follow(StateRow(ORDERS_1))  # lost
    follower.follow(StateRow(BILLS_0))

    assert not leader.followers.receive(follower.sent[-1])
    assert not leader.has(ORDERS_1)

    follower.following.requested(leader.requested[-1])
    assert leader.followers.receive(follower.sent[-1])
    assert leader.has(ORDERS_0)
    assert leader.has(ORDERS_1)


def test_complete_report_replaces_earlier_ones() -> None:
    leader = Leader(StateRow(ORDERS_0), StateRow(ORDERS_1))
    follower = reporting(leader)
    follower.following.forget(follower.row(ORDERS_0))  # lost
    follower.hosted.remove(follower.row(ORDERS_0), ints([0]), controller_epoch=1)

    follower.following.requested(FollowerReportsRequested(LEADER, FOLLOWER, EPOCH, 1))
    assert leader.followers.receive(follower.sent[-1])

    assert not leader.has(ORDERS_0)


def test_report_that_was_overtaken_changes_nothing() -> None:
    leader = Leader(StateRow(ORDERS_0), StateRow(ORDERS_1))
    follower = reporting(leader)
    follower.follow(StateRow(ORDERS_1))
    assert leader.followers.receive(follower.sent[1])

    assert not leader.followers.receive(follower.sent[0])

    assert leader.requested == []
    assert leader.has(ORDERS_1)


# -- over a network that loses messages --------------------------------------------------------------------------------


class LossyHub(MemoryHub):
    """Loses the messages between participants for which `loses` returns true."""

    loses: Callable[[PeerMessage], bool] = staticmethod(lambda message: False)

    def send(self, message: PeerMessage) -> None:
        if not self.loses(message):
            super().send(message)


@pytest.mark.parametrize("kind", [FollowerReports, FollowerReportsRequested])
async def test_lost_message_is_repaired_at_the_next_report(network: Network, kind: type[PeerMessage]) -> None:
    hub = network.hub = LossyHub()
    hub.loses = lambda message: isinstance(message, kind)
    async with stored_isr_group(network):
        row = await network.elect()
        await network.send(2, update_metadata(row))
        await network.lead_and_follow(2, row)
        await network.send(1, update_metadata(row))
        await network.lead_and_follow(1, row)
        await settle()
        assert await isr(network) == (1, 3)

        hub.loses = lambda message: False
        await network.clock.advance(LAG_MS / 4 - 1)
        assert await isr(network) == (1, 3)
        await network.clock.advance(1)
        assert await isr(network) == (1, 2, 3)
