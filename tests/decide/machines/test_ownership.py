"""Owners of shards are placed evenly, and stay where they are as far as possible."""

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.decide.machines.ownership import Handover, Place, Shard, Shards, even, place
from kactl.model import NO_BROKER


def topic(owners: list[int], members: dict[int, int] | list[int], standby: int = 0) -> Shards:
    weights = members if isinstance(members, dict) else dict.fromkeys(members, 1)
    return Shards(weights, standby, tuple(Shard(owner) for owner in owners))


def owners(places: list[Place]) -> list[int]:
    return [each.owner for each in places]


def placed(shards: Shards) -> list[Place]:
    return place([shards])[0]


def after(shards: Shards, places: list[Place]) -> Shards:
    kept = zip(places, shards.shards, strict=True)
    return shards._replace(shards=tuple(Shard(each.owner, each.standbys, shard.barred) for each, shard in kept))


def evened(topics: list[Shards]) -> list[Shards]:
    """Hand over, one shard at a time, until the shares are even."""
    while moves := even(topics, limit=1):
        for number, index, owner in moves:
            shards = list(topics[number].shards)
            shards[index] = shards[index]._replace(owner=owner)
            topics[number] = topics[number]._replace(shards=tuple(shards))
    return topics


def is_even(shards: Shards, owned: list[int]) -> bool:
    """Whether each member owns its share, within less than one shard."""
    counts, whole = Counter(owned), sum(shards.weights.values())
    return all(abs(counts[id_] - len(owned) * weight / whole) <= 1 + 1e-9 for id_, weight in shards.weights.items())


# -- scenarios ---------------------------------------------------------------------------------------------------------


def test_new_shards_are_placed_in_equal_shares() -> None:
    assert Counter(owners(placed(topic([NO_BROKER] * 7, [1, 2, 3])))) == {1: 3, 2: 2, 3: 2}


def test_shares_follow_the_weights() -> None:
    assert Counter(owners(placed(topic([NO_BROKER] * 8, {1: 1, 2: 3})))) == {1: 2, 2: 6}


def test_leave_moves_only_what_the_leaver_owned() -> None:
    assert owners(placed(topic([1, 2, 3, 1, 2, 3], [2, 3]))) == [2, 2, 3, 3, 2, 3]


def test_member_that_comes_gets_nothing_before_it_is_evened_out() -> None:
    assert owners(placed(topic([1, 2, 1, 2], [1, 2, 3]))) == [1, 2, 1, 2]


def test_join_moves_only_what_evens_out() -> None:
    moves = even([topic([1, 1, 1, 2, 2, 2], [1, 2, 3])], limit=10)

    assert moves == [Handover(0, 3, 3), Handover(0, 0, 3)]


def test_shards_that_have_moved_least_move_first() -> None:
    shards = topic([1, 1, 1], [1, 2])
    moved = [shard._replace(epoch=epoch) for shard, epoch in zip(shards.shards, (4, 2, 3), strict=True)]

    assert even([shards._replace(shards=tuple(moved))], limit=10) == [Handover(0, 1, 2)]


def test_batch_is_limited() -> None:
    assert len(even([topic([1] * 24, [1, 2, 3])], limit=5)) == 5


def test_shares_that_are_even_stay() -> None:
    assert even([topic([1, 2, 3, 1], [1, 2, 3])], limit=10) == []


def test_single_shards_of_many_topics_are_spread_over_the_members() -> None:
    topics = [topic([NO_BROKER], [1, 2, 3]) for _ in range(6)]

    assert Counter(owner for places in place(topics) for owner in owners(places)) == {1: 2, 2: 2, 3: 2}


def test_single_shards_of_many_topics_are_evened_out_together() -> None:
    topics = evened([topic([1], [1, 2, 3]) for _ in range(6)])

    assert Counter(each.shards[0].owner for each in topics) == {1: 2, 2: 2, 3: 2}


def test_standby_takes_over_from_an_owner_that_has_left() -> None:
    shards = Shards({2: 1, 3: 1}, 1, (Shard(1, (3,)), Shard(1, (2,)), Shard(2, (3,)), Shard(3, (2,))))

    assert owners(placed(shards)) == [3, 2, 2, 3]


def test_standbys_that_leave_are_replaced() -> None:
    shards = Shards({1: 1, 2: 1, 3: 1}, 1, (Shard(1, (4,)), Shard(2, (3,))))

    assert placed(shards) == [Place(1, (2,)), Place(2, (3,))]


def test_standbys_of_one_owner_are_spread() -> None:
    places = placed(topic([NO_BROKER] * 12, [1, 2, 3, 4], standby=1))

    assert len({(each.owner, *each.standbys) for each in places}) == 12


def test_shard_leaves_an_owner_that_cannot_serve_it() -> None:
    shards = Shards({1: 1, 2: 1}, 0, (Shard(1, barred=frozenset({1})), Shard(1), Shard(2)))

    assert owners(placed(shards)) == [2, 1, 2]


def test_shard_that_fails_goes_through_all_members_before_one_has_it_again() -> None:
    able = dict.fromkeys(range(1, 5), 1)
    owned = [1]

    for _ in range(7):
        earlier = tuple(dict.fromkeys(reversed(owned[:-1])))
        failing = Shard(owned[-1], barred=frozenset({owned[-1]}), resigned=tuple(m for m in earlier if m != owned[-1]))
        owned += owners(placed(Shards(able, 0, (failing, Shard(1), Shard(2)))))[:1]

    assert sorted(owned[:4]) == [1, 2, 3, 4]
    assert owned[4:] == owned[:4]


def test_standby_that_has_failed_gets_the_shard_last() -> None:
    shard = Shard(1, (2,), barred=frozenset({1}), resigned=(2,))

    assert owners(placed(Shards({1: 1, 2: 1, 3: 1}, 1, (shard,)))) == [3]


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_no_shard_moves_because_of_one_that_fails(failing: int) -> None:
    steady = [Shard(member) for member in (1, 1, 1, 2, 2, 2, 3)]

    assert even([Shards({1: 1, 2: 1, 3: 1}, 0, (*steady, Shard(failing, fails=True)))], limit=5) == []


@pytest.mark.parametrize("failing", [1, 2])
def test_no_shard_of_another_topic_moves_because_of_one_that_fails(failing: int) -> None:
    alone, steady = (Shards({1: 1, 2: 1}, 0, (shard,)) for shard in (Shard(failing, fails=True), Shard(1)))

    assert even([alone, steady], limit=5) == even([steady, alone], limit=5) == []


def test_shares_are_evened_out_beside_shards_that_fail() -> None:
    steady = [Shard(member) for member in (1, 1, 1, 1, 2, 2, 2, 2)]

    moves = even([Shards({1: 1, 2: 1, 3: 1}, 0, (Shard(1, fails=True), *steady))], limit=5)

    assert [move.owner for move in moves] == [3, 3]
    assert all(move.shard > 0 for move in moves)


def test_shard_that_has_failed_moves_before_others() -> None:
    shards = (Shard(1), Shard(1), Shard(1, epoch=9, has_failed=True), Shard(2))

    assert even([Shards({1: 1, 2: 1}, 0, shards)], limit=5) == [Handover(0, 2, 2)]


def test_shard_that_no_member_can_serve_stays() -> None:
    shards = Shards({1: 1, 2: 1}, 0, (Shard(1, barred=frozenset({1, 2})),))

    assert owners(placed(shards)) == [1]


def test_shards_without_members_keep_their_owner() -> None:
    assert owners(placed(topic([1, NO_BROKER], []))) == [1, NO_BROKER]


# -- properties --------------------------------------------------------------------------------------------------------

members = st.dictionaries(st.integers(1, 8), st.integers(1, 4), min_size=1, max_size=6)
some_shards = st.builds(
    lambda weights, standby, owned: topic(owned, weights, standby),
    members,
    st.integers(0, 2),
    st.lists(st.integers(NO_BROKER, 8), min_size=1, max_size=20),
)


@given(some_shards)
def test_owners_that_are_members_stay(shards: Shards) -> None:
    for before, now in zip(shards.shards, placed(shards), strict=True):
        assert now.owner in shards.weights
        assert now.owner == before.owner or before.owner not in shards.weights


@given(some_shards)
def test_placement_that_is_made_is_not_changed(shards: Shards) -> None:
    places = placed(shards)

    assert placed(after(shards, places)) == places


@given(some_shards)
def test_every_shard_has_its_standbys(shards: Shards) -> None:
    for each in placed(shards):
        assert len(set(each.replicas)) == len(each.replicas)
        assert set(each.replicas) <= shards.weights.keys()
        assert len(each.standbys) == min(shards.standby, len(shards.weights) - 1)


@given(st.lists(some_shards, min_size=1, max_size=3))
def test_hand_overs_end_with_even_shares(topics: list[Shards]) -> None:
    settled = [after(shards, places) for shards, places in zip(topics, place(topics), strict=True)]

    for shards in evened(settled):
        assert is_even(shards, [shard.owner for shard in shards.shards])


@given(st.integers(1, 24), st.integers(1, 6), st.data())
def test_leave_and_join_move_no_more_than_they_have_to(count: int, size: int, data: st.DataObject) -> None:
    ids = list(range(1, size + 1))
    shards = topic([NO_BROKER] * count, ids, data.draw(st.integers(0, 1)))
    shards = after(shards, placed(shards))
    leaver = data.draw(st.sampled_from(ids))

    rest = shards._replace(weights={id_: 1 for id_ in ids if id_ != leaver} or {9: 1})
    left = after(rest, placed(rest))
    joined = left._replace(weights={**left.weights, 10: 1})
    moves = even([joined], limit=count)

    assert even([left], limit=count) == []  # the leaver's shards have gone where they keep the shares even
    assert len(moves) == count // len(joined.weights)
    assert {move.owner for move in moves} <= {10}


# -- every history of a small cluster ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "standby"), [(1, 0), (2, 1), (3, 1), (5, 0)])
def test_every_history_of_joins_and_leaves_keeps_the_promises(count: int, standby: int) -> None:
    ids = (1, 2, 3)
    start = Shards({}, standby, tuple(Shard(NO_BROKER) for _ in range(count)))
    subsets = [dict.fromkeys(some, 1) for size in range(4) for some in itertools.combinations(ids, size)]
    visited, todo = set(), [start]

    while todo:
        before = todo.pop()
        steps = [after(before, placed(before))]
        for _, index, owner in even([steps[0]], limit=1):
            shards = list(steps[0].shards)
            shards[index] = Shard(owner, (shards[index].owner, *shards[index].standbys))
            steps.append(steps[0]._replace(shards=tuple(shards)))
        steps += [before._replace(weights=weights) for weights in subsets]
        settled = steps[0]
        for shard, was in zip(settled.shards, before.shards, strict=True):
            if before.weights:
                assert shard.owner in before.weights
                assert len(shard.standbys) == min(standby, len(before.weights) - 1)
            if was.owner in before.weights:
                assert shard.owner == was.owner
        if not even([settled], limit=1) and settled.weights:
            counts = Counter(shard.owner for shard in settled.shards)
            assert max(counts.values()) <= math.ceil(count / len(settled.weights))
        for step in steps:
            state = frozenset(step.weights), step.shards
            if state not in visited:
                visited.add(state)
                todo.append(step)
    assert len(visited) > 10
