"""Members that are restarted one after the other: few shards move twice, however long the steps take."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from kactl.decide.machines.ownership import Shard, Shards, even, place
from kactl.decide.machines.restart import PACE_DELAYS_MAX, PATIENCE_DELAYS, Restart, stopped
from kactl.model import NO_BROKER

DELAY_MS = 3_000.0


class Deploy:
    """Shards of one topic, and members that stop and come.

    Attributes:
        changes: of the owner, by shard.
        most_above: how many shards more than the average the busiest member has had, `DELAY_MS` after a change.
    """

    def __init__(self, members: int, shards: int, order: Sequence[int] = ()) -> None:
        self.now_ms = 0.0
        self.joined = {member: number for number, member in enumerate(order or range(1, members + 1), 1)}
        self.restart: Restart | None = None
        self.shards = [Shard(NO_BROKER)] * shards
        self._apply()
        self.changes: Counter[int] = Counter()
        self.most_above = 0.0

    @property
    def topic(self) -> Shards:
        known = Shards(dict.fromkeys(self.joined, 1), 0, tuple(self.shards), self.joined)
        if self.restart is None:
            return known
        self.restart = self.restart.seen(self.joined, self.now_ms)
        is_restarting = self.restart.left_ms(self.joined, self.now_ms) > 0
        return known._replace(restarted=self.restart.members(self.joined), is_restarting=is_restarting)

    @property
    def owned(self) -> list[int]:
        counts = Counter(shard.owner for shard in self.shards)
        return sorted(counts[member] for member in self.joined)

    def _apply(self) -> None:
        for index, each in enumerate(place([self.topic])[0]):
            self._move(index, each.owner)

    def _move(self, index: int, owner: int) -> None:
        before = self.shards[index]
        if owner != before.owner:
            self.shards[index] = Shard(owner, epoch=before.epoch + 1)
            if before.owner != NO_BROKER:
                self.changes[index] += 1

    def pass_ms(self, ms: float) -> None:
        self.now_ms += ms
        if ms >= DELAY_MS:
            while moves := even([self.topic], limit=20):
                for _, index, owner in moves:
                    self._move(index, owner)
            self.most_above = max(self.most_above, self.owned[-1] - len(self.shards) / len(self.joined))

    def stop(self, member: int) -> None:
        self.restart = stopped(self.restart, member, self.joined, now_ms=self.now_ms, delay_ms=DELAY_MS)
        self.joined = {id_: order for id_, order in self.joined.items() if id_ != member}
        self._apply()

    def come(self, member: int) -> None:
        self.joined = {**self.joined, member: max(self.joined.values()) + 1_000}
        self._apply()

    def all_in_turn(self, step_ms: float) -> None:
        for member in sorted(self.joined):
            self.stop(member)
            self.pass_ms(step_ms)
            self.come(member)
            self.pass_ms(step_ms)
        self.pass_ms(DELAY_MS)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("step_ms", [100, 5_000, 70_000, 140_000])
def test_deploy_changes_owners_15_times_in_any_order(step_ms: float, seed: int) -> None:
    order = list(range(1, 7))
    random.Random(seed).shuffle(order)
    deploy = Deploy(6, 12, order)

    deploy.all_in_turn(step_ms)

    assert deploy.changes.total() == 15
    assert max(deploy.changes.values()) <= 2
    assert deploy.owned[0] >= 1
    assert deploy.most_above <= 1


@pytest.mark.parametrize("step_ms", [100, 5_000, 70_000, 1_000_000])
def test_deploys_in_order_of_the_last_one_change_owners_no_more(step_ms: float) -> None:
    deploy = Deploy(6, 12)

    for _ in range(3):
        deploy.changes.clear()
        deploy.all_in_turn(step_ms)

        assert deploy.changes.total() <= 15
        assert max(deploy.changes.values()) <= 2


@pytest.mark.parametrize("step_ms", [100, 5_000, 70_000])
def test_deploy_of_many_members_moves_few_shards_twice(step_ms: float) -> None:
    deploy = Deploy(40, 1_000)

    deploy.all_in_turn(step_ms)

    assert deploy.changes.total() <= 1_050
    assert max(deploy.changes.values()) <= 2
    assert deploy.owned[0] >= 24
    assert deploy.owned[-1] <= 26
    assert deploy.most_above <= 1


def test_members_that_come_before_others_stop_move_each_shard_once() -> None:
    deploy = Deploy(6, 12)

    for member in range(1, 7):
        deploy.come(100 + member)
        deploy.pass_ms(DELAY_MS)
        deploy.stop(member)
        deploy.pass_ms(DELAY_MS)

    assert set(deploy.changes.values()) == {1}
    assert deploy.owned == [2] * 6


def test_single_member_that_is_restarted_gets_its_share_after_a_minute() -> None:
    deploy = Deploy(3, 12)
    deploy.stop(1)
    deploy.come(1)
    deploy.pass_ms(DELAY_MS)
    assert deploy.owned == [2, 5, 5]

    deploy.pass_ms(PATIENCE_DELAYS * DELAY_MS)

    assert deploy.owned == [3, 4, 5]


def test_member_that_no_other_has_left_room_for_gets_an_even_share() -> None:
    deploy = Deploy(3, 12)
    deploy.all_in_turn(100)

    deploy.come(9)
    deploy.pass_ms(DELAY_MS)

    assert Counter(shard.owner for shard in deploy.shards)[9] == 3


def test_last_replacement_ends_a_restart_at_once() -> None:
    deploy = Deploy(2, 4)
    for member in (1, 2):
        deploy.stop(member)
        deploy.come(member)

    assert deploy.topic.is_restarting is False


def test_restart_lasts_twice_as_long_as_its_longest_step() -> None:
    deploy = Deploy(3, 6)
    deploy.stop(1)
    deploy.pass_ms(PACE_DELAYS_MAX * DELAY_MS)
    deploy.come(1)

    assert deploy.topic.is_restarting
    assert deploy.restart is not None
    assert deploy.restart.left_ms(deploy.joined, deploy.now_ms) == 2 * PACE_DELAYS_MAX * DELAY_MS


def test_long_pause_is_no_step() -> None:
    deploy = Deploy(3, 6)
    deploy.stop(1)
    deploy.pass_ms(PACE_DELAYS_MAX * DELAY_MS + 1)
    deploy.come(1)

    assert deploy.topic.is_restarting
    assert deploy.restart is not None
    assert deploy.restart.left_ms(deploy.joined, deploy.now_ms) == PATIENCE_DELAYS * DELAY_MS


def test_member_that_stays_although_it_wanted_to_stop_is_no_replacement() -> None:
    deploy = Deploy(3, 6)
    before = deploy.joined
    deploy.stop(1)
    deploy.joined = before

    assert deploy.topic.is_restarting is False
    assert deploy.restart is not None
    assert deploy.restart.stopped == frozenset()


def test_restart_begins_anew_when_all_have_been_replaced() -> None:
    deploy = Deploy(2, 4)
    deploy.all_in_turn(100)
    before = deploy.restart

    deploy.stop(1)

    assert deploy.restart is not None
    assert before is not None
    assert deploy.restart.last_joined > before.last_joined
    assert len(deploy.restart.stopped) == 1


def test_restarted_member_owns_a_shard_of_each_topic_of_which_another_one_owns_two() -> None:
    members, restarted = {1: 1, 3: 1, 4: 1}, frozenset({1, 3, 4})
    idle = Shards(members, 0, (Shard(1), Shard(3), Shard(3)), restarted=restarted)
    other = Shards(members, 0, (Shard(1), Shard(3), Shard(4)), restarted=restarted)

    moves = even([idle, other], limit=20)

    assert [(topic, owner) for topic, _, owner in moves] == [(0, 4)]
