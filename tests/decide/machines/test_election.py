"""Leader elections, row by row: the choice of each election, the resulting ISR, and the notified brokers."""

import dataclasses
from collections.abc import Collection, Iterable
from typing import cast

import numpy as np
import pytest

from kactl.actors.machines.machine import Move
from kactl.actors.machines.partitions import Partitions
from kactl.decide.machines import partition
from kactl.decide.machines.election import STRATEGIES, Election, first_leader
from kactl.decide.outbound.batch import Addressed
from kactl.decide.state.change import Change, Refusal
from kactl.decide.state.rows import BrokerSet, LiveBrokers
from kactl.model import Fence, Leadership, PartitionState
from kactl.runtime.clock import SystemClock
from kactl.stores.base import Committed, Leaderships, Names, Outcome, Store, Write
from kactl.telemetry.event_log import EventLog
from tests.support.cluster_seeds import EPOCH, ClusterSeed, PartitionSeed, led, rows_of, tp

T0 = tp("t-0")


def a_partition(
    replicas: Iterable[int],
    leadership: Leadership,
    *,
    live: Iterable[int],
    shutting_down: Iterable[int] = (),
    adding: Iterable[int] = (),
    removing: Iterable[int] = (),
    state: PartitionState = PartitionState.OFFLINE,
    dirs_offline: Iterable[int] = (),
) -> ClusterSeed:
    """Cluster of one partition, t-0. `live` may include brokers that are shutting down; they do not count as live."""
    leaving = frozenset(shutting_down)
    seed = PartitionSeed(
        replicas=tuple(replicas),
        adding=tuple(adding),
        removing=tuple(removing),
        leadership=leadership,
        state=state,
        dirs_offline=tuple(dirs_offline),
    )
    return ClusterSeed(live=frozenset(live) - leaving, shutting_down=leaving, partitions={T0: seed})


def elect(seed: ClusterSeed, election: Election, *, unclean: bool = False) -> Change:
    """Plan an election of the one partition. `unclean`: its topic allows an unclean election."""
    cluster = seed.columns()
    rows = rows_of(cluster, "t-0")
    allowed = np.array([unclean or election is Election.UNCLEAN])
    return partition.elect(rows, election, cluster.live_brokers, unclean=allowed, controller_epoch=seed.epoch)


def leader_of(change: Change) -> int | None:
    """Return the elected leader; None if no replica was eligible and nothing changes."""
    if change.refusal[0] == Refusal.NONE:
        assert change.writes[0]
        return int(change.leader[0])
    assert change.refusal[0] == Refusal.NO_ELIGIBLE_LEADER
    assert not change.writes.any()
    assert not change.notify.any()
    assert not change.unclean.any()
    for name in ("leader", "leader_epoch", "in_sync", "recovering", "state", "controller_epoch"):
        assert np.array_equal(getattr(change, name), getattr(change.rows, name)), name
    return None


def outcome(change: Change) -> tuple[int, int, set[int]]:
    """Return (leader, leader epoch, ISR). The ISR is a set."""
    assert change.refusal[0] == Refusal.NONE
    members = change.rows.replicas[:, 0][change.in_sync[:, 0]].tolist()
    assert len(members) == len(set(members))
    return int(change.leader[0]), int(change.leader_epoch[0]), set(members)


def notified(change: Change) -> list[int]:
    """Return the brokers that receive a LeaderAndIsr request, in assignment order."""
    named: list[int] = change.rows.replicas[:, 0][change.notify[:, 0]].tolist()
    return named


# -- choice of a leader ------------------------------------------------------------------------------------------------

OFFLINE, UNCLEAN, REASSIGNMENT, PREFERRED, SHUTDOWN, OWNERSHIP = Election


@dataclasses.dataclass(frozen=True)
class Row:
    """One election with replicas 2 and 4."""

    number: int
    election: Election
    isr: tuple[int, ...]
    live: tuple[int, ...]
    leader: int | None
    unclean: bool = False
    shutting_down: tuple[int, ...] = ()
    was_unclean: bool = False


ROWS = [
    Row(78, OFFLINE, isr=(2, 4), live=(4,), leader=4),
    Row(79, OFFLINE, isr=(2,), live=(4,), leader=None),
    Row(80, OFFLINE, isr=(2,), live=(4,), leader=4, unclean=True, was_unclean=True),
    Row(81, REASSIGNMENT, isr=(2, 4), live=(4,), leader=4),
    Row(82, REASSIGNMENT, isr=(2,), live=(), leader=None),
    Row(83, REASSIGNMENT, isr=(), live=(2,), leader=None),
    Row(84, PREFERRED, isr=(2, 4), live=(2, 4), leader=2),
    Row(85, PREFERRED, isr=(2,), live=(), leader=None),
    Row(86, PREFERRED, isr=(4,), live=(2, 4), leader=None),
    Row(87, PREFERRED, isr=(), live=(), leader=None),
    Row(88, SHUTDOWN, isr=(2, 4), live=(2, 4), shutting_down=(2,), leader=4),
    Row(89, SHUTDOWN, isr=(2,), live=(2, 4), shutting_down=(2,), leader=None),
    Row(90, SHUTDOWN, isr=(2, 4), live=(2, 4), shutting_down=(2, 4), leader=None),
]


@pytest.mark.parametrize(("isr", "live", "leader"), [((4,), (2, 4), 2), ((2,), (4,), 4), ((2, 4), (), None)])
def test_any_online_candidate_may_own(isr: tuple[int, ...], live: tuple[int, ...], leader: int | None) -> None:
    seed = a_partition((2, 4), led(4, 3, isr), live=live)

    change = elect(seed, OWNERSHIP, unclean=False)

    assert leader_of(change) == leader
    if leader is not None:
        assert outcome(change) == (leader, 4, set(live))


def test_owner_that_lives_is_not_notified_of_the_next_one() -> None:
    seed = a_partition((2, 4, 6), led(4, 3, (2, 4, 6)), live=(2, 4, 6))

    change = elect(seed, OWNERSHIP, unclean=False)

    assert leader_of(change) == 2
    assert notified(change) == [2, 6]


@pytest.mark.parametrize("row", [pytest.param(row, marks=pytest.mark.scenario(row.number)) for row in ROWS])
def test_choice_between_two_replicas(row: Row) -> None:
    seed = a_partition((2, 4), led(2, 3, row.isr), live=row.live, shutting_down=row.shutting_down)

    change = elect(seed, row.election, unclean=row.unclean)

    assert leader_of(change) == row.leader
    assert bool(change.unclean[0]) == row.was_unclean


@pytest.mark.scenario(91)
@pytest.mark.parametrize("election", Election)
def test_partition_without_replicas_gets_no_leader(election: Election) -> None:
    seed = a_partition((), led(1, 3, ()), live=(1, 2))

    assert leader_of(elect(seed, election, unclean=True)) is None


@pytest.mark.scenario(91)
def test_partition_without_replicas_gets_no_first_leader() -> None:
    cluster = ClusterSeed(live=frozenset({1}), partitions={T0: PartitionSeed(state=PartitionState.NEW)}).columns()

    change = partition.initialize(rows_of(cluster), cluster.live_brokers, controller_epoch=1)

    assert change.refusal.tolist() == [Refusal.NO_ONLINE_REPLICA]


# -- offline -----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(92)
@pytest.mark.scenario(93)
@pytest.mark.parametrize("recovering", [False, True])
def test_first_online_isr_member_leads_and_isr_shrinks_to_online(recovering: bool) -> None:
    """The ISR is compared as a set."""
    seed = a_partition((3, 1, 2), led(3, 4, (2, 1, 3), 9, recovering=recovering), live=(1, 2))

    change = elect(seed, Election.OFFLINE)

    assert outcome(change) == (1, 5, {2, 1})
    assert notified(change) == [1, 2]
    assert change.recovering.tolist() == [recovering]
    assert change.state.tolist() == [PartitionState.ONLINE]
    assert change.rows.partition_epoch.tolist() == [9]
    assert change.controller_epoch.tolist() == [EPOCH]


def test_levels_without_recovery_do_not_set_it() -> None:
    seed = dataclasses.replace(a_partition((1, 2), led(1, 4, (1,)), live=(2,)), recovery=False)

    change = elect(seed, Election.OFFLINE, unclean=True)

    assert outcome(change) == (2, 5, {2})
    assert change.recovering.tolist() == [False]


@pytest.mark.scenario(98)
def test_unclean_election_is_clean_if_possible() -> None:
    change = elect(a_partition((1, 2), led(1, 4, (1,)), live=(1, 2)), Election.UNCLEAN)

    assert outcome(change) == (1, 5, {1})
    assert change.recovering.tolist() == [False]
    assert change.unclean.tolist() == [False]


@pytest.mark.scenario(99)
def test_unclean_election_needs_an_online_replica() -> None:
    assert leader_of(elect(a_partition((1, 2), led(1, 4, (1,)), live=()), Election.UNCLEAN)) is None


@pytest.mark.scenario(101)
def test_online_stray_stays_in_sync() -> None:
    """The ISR is compared as a set."""
    change = elect(a_partition((1, 2), led(2, 4, (9, 2)), live=(1, 2, 9)), Election.OFFLINE)

    assert outcome(change) == (2, 5, {9, 2})
    assert notified(change) == [1, 2]


@pytest.mark.scenario(102)
def test_online_stray_cannot_lead_and_blocks_unclean_election() -> None:
    assert leader_of(elect(a_partition((1, 2), led(9, 4, (9,)), live=(1, 9)), Election.UNCLEAN)) is None


@pytest.mark.scenario(103)
def test_broker_shutting_down_counts_as_dead() -> None:
    seed = a_partition((1, 2, 3), led(1, 4, (1, 2, 3)), live=(2, 3), shutting_down=(2,))

    assert outcome(elect(seed, Election.OFFLINE)) == (3, 5, {3})


def test_failed_directory_counts_as_a_dead_broker() -> None:
    seed = a_partition((1, 2, 3), led(1, 4, (1, 2, 3)), live=(1, 2, 3), dirs_offline=(1,))

    change = elect(seed, Election.OFFLINE)

    assert outcome(change) == (2, 5, {2, 3})
    assert notified(change) == [2, 3]


# -- other elections ---------------------------------------------------------------------------------------------------


@pytest.mark.scenario(104)
def test_reassigned_partition_is_led_from_the_target() -> None:
    seed = a_partition((4, 5, 1), led(1, 4, (1, 4, 5)), adding=(4, 5), removing=(1,), live=(1, 5))

    change = elect(seed, Election.REASSIGNMENT)

    assert outcome(change) == (5, 5, {1, 4, 5})
    assert notified(change) == [4, 5]


@pytest.mark.scenario(105)
def test_preferred_replica_leads_and_isr_is_unchanged() -> None:
    """The ISR is compared as a set."""
    change = elect(a_partition((1, 2, 3), led(3, 4, (3, 1)), live=(1, 3)), Election.PREFERRED)

    assert outcome(change) == (1, 5, {3, 1})
    assert notified(change) == [1, 2, 3]


@pytest.mark.scenario(106)
def test_leader_epoch_rises_even_if_the_leader_stays() -> None:
    change = elect(a_partition((1, 2), led(1, 4, (1, 2)), live=(1, 2), state=PartitionState.ONLINE), Election.PREFERRED)

    assert outcome(change) == (1, 5, {1, 2})
    assert change.writes.tolist() == [True]


@pytest.mark.scenario(107)
def test_all_brokers_shutting_down_leave_the_isr() -> None:
    seed = a_partition((1, 2, 3), led(1, 4, (1, 2, 3)), live=(1, 2, 3), shutting_down=(1, 2))

    change = elect(seed, Election.CONTROLLED_SHUTDOWN)

    assert outcome(change) == (3, 5, {3})
    assert notified(change) == [1, 2, 3]


@pytest.mark.scenario(108)
def test_dead_broker_stays_in_the_isr_in_controlled_shutdown() -> None:
    seed = a_partition((1, 2, 3), led(1, 4, (1, 2, 3)), live=(1, 2), shutting_down=(1,))

    change = elect(seed, Election.CONTROLLED_SHUTDOWN)

    assert outcome(change) == (2, 5, {2, 3})
    assert notified(change) == [1, 2]


@pytest.mark.parametrize("election", Election)
def test_election_of_many_rows_equals_single_elections(election: Election) -> None:
    """The result of a row does not depend on the other rows."""
    seeds = {
        tp(f"t-{number}"): PartitionSeed(
            replicas=tuple(range(number % 4, number % 4 + 3)),
            leadership=led(number % 5, number, tuple(range(number % 3, number % 5 + 1))),
            state=PartitionState.OFFLINE,
        )
        for number in range(60)
    }
    cluster = ClusterSeed(live=frozenset({1, 3, 5}), shutting_down=frozenset({2}), partitions=seeds).columns()
    rows, unclean = rows_of(cluster), np.arange(60) % 2 == 0

    together = STRATEGIES[election](rows, cluster.live_brokers, unclean)

    for number in range(60):
        alone = STRATEGIES[election](rows.take(np.array([number])), cluster.live_brokers, unclean[number : number + 1])
        for field in dataclasses.fields(alone):
            assert np.array_equal(getattr(together, field.name)[..., [number]], getattr(alone, field.name)), field.name


@pytest.mark.parametrize("election", Election)
def test_election_of_no_rows_is_empty(election: Election) -> None:
    rows = rows_of(ClusterSeed().columns())
    now = LiveBrokers(BrokerSet(), BrokerSet())

    assert len(STRATEGIES[election](rows, now, np.zeros(0, np.bool_)).leader) == 0
    assert len(first_leader(rows, now).leader) == 0


# -- permission for unclean elections: configuration and metric --------------------------------------------------------


class OneTopicStore:
    """Store with the leadership of t-0 (compare-and-set) and the overrides of topic t; nothing else.

    `races`: number of writes that fail because the leader wrote first.
    """

    def __init__(self, stored: Leadership, config: dict[str, str] | None, races: int = 0) -> None:
        self.stored = stored
        self.config = config
        self.races = races
        self.config_reads = 0

    async def topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str] | None]:
        self.config_reads += 1
        return dict.fromkeys(topics, self.config)

    async def leaderships(self, names: Names) -> Leaderships:
        return Leaderships.of([self.stored for _ in names])

    async def commit(self, write: Write, fence: Fence) -> Committed:
        if self.races:
            self.races -= 1
            version = self.stored.partition_epoch + 1
            self.stored = led(self.stored.leader, self.stored.leader_epoch, self.stored.isr, version)
        if write.expected[0] != self.stored.partition_epoch:
            return Committed(np.array([Outcome.CONFLICT], np.uint8), np.array([-1], np.int32))
        version = self.stored.partition_epoch + 1
        isr = tuple(member for member in write.isr[:, 0].tolist() if member >= 0)
        self.stored = Leadership(
            int(write.leader[0]), int(write.leader_epoch[0]), isr, version, fence.epoch, bool(write.recovering[0])
        )
        return Committed(np.array([Outcome.COMMITTED], np.uint8), np.array([version], np.int32))


class Sent(list[Addressed]):
    """Outbox that keeps everything."""

    def send(self, requests: Iterable[Addressed]) -> None:
        self.extend(requests)


async def elect_by_actor(
    store: OneTopicStore, election: Election, *, live: Iterable[int] = (2,), default: bool = False
) -> tuple[Refusal, Partitions]:
    """Elect a leader of t-0, with replicas 1 and 2, through the actor. Returns the failure and the actor."""
    cluster = a_partition((1, 2), store.stored, live=live).columns()
    actor = Partitions(cluster, cast(Store, store), Sent(), EventLog(SystemClock()), unclean_default=default)
    move = Move(cluster.table.rows_named([T0]), PartitionState.ONLINE, election)
    moved = await actor.receive(move)
    return Refusal(int(moved.refusal[0])), actor


def overrides(text: str) -> dict[str, str]:
    return {"unclean.leader.election.enable": text}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("config", "default", "refusal"),
    [
        pytest.param(overrides("true"), False, Refusal.NONE, marks=pytest.mark.scenario(94)),
        pytest.param(overrides("false"), True, Refusal.NO_ELIGIBLE_LEADER, marks=pytest.mark.scenario(95)),
        pytest.param({}, True, Refusal.NONE, marks=pytest.mark.scenario(96)),
        pytest.param(None, True, Refusal.CONFIG_UNREADABLE, marks=pytest.mark.scenario(97)),
        pytest.param({}, False, Refusal.NO_ELIGIBLE_LEADER),
    ],
)
async def test_topic_configuration_allows_unclean_election(
    config: dict[str, str] | None, default: bool, refusal: Refusal, caplog: pytest.LogCaptureFixture
) -> None:
    store = OneTopicStore(led(1, 4, (1,), 9), config)

    refused, actor = await elect_by_actor(store, Election.OFFLINE, default=default)

    assert refused is refusal
    assert actor.unclean_elections == (refusal is Refusal.NONE)
    if refusal is Refusal.NONE:
        assert store.stored == led(2, 5, (2,), 10, recovering=True)
        assert actor.cluster.view(T0).leadership == store.stored  # type: ignore[union-attr]
    else:
        assert store.stored == led(1, 4, (1,), 9)
        assert f"t-0: {refusal.name}" in caplog.text


@pytest.mark.anyio
@pytest.mark.scenario(98)
async def test_clean_election_does_not_read_the_configuration() -> None:
    store = OneTopicStore(led(1, 4, (1,), 9), None)

    refused, actor = await elect_by_actor(store, Election.UNCLEAN, live=(1, 2))

    assert refused is Refusal.NONE
    assert store.stored == led(1, 5, (1,), 10)
    assert (store.config_reads, actor.unclean_elections) == (0, 0)


@pytest.mark.anyio
@pytest.mark.scenario(99)
async def test_unclean_election_without_result_is_not_counted() -> None:
    store = OneTopicStore(led(1, 4, (1,), 9), None)

    refused, actor = await elect_by_actor(store, Election.UNCLEAN, live=())

    assert refused is Refusal.NO_ELIGIBLE_LEADER
    assert (store.config_reads, actor.unclean_elections) == (0, 0)


@pytest.mark.anyio
@pytest.mark.scenario(100)
async def test_repeated_unclean_election_is_counted_again() -> None:
    store = OneTopicStore(led(1, 4, (1,), 9), {}, races=1)

    refused, actor = await elect_by_actor(store, Election.UNCLEAN)

    assert refused is Refusal.NONE
    assert store.stored == led(2, 5, (2,), 11, recovering=True)
    assert actor.unclean_elections == 2
