"""Assignments that name a controller are rewritten: to whom its place goes, and when there is nobody."""

from hypothesis import given
from hypothesis import strategies as st

from kactl.machines.exclude_controllers import rewritten
from kactl.model import Assignment, TopicPartition

KACTL = 900
ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def placed(*replicas: int, load: dict[int, int]) -> tuple[int, ...] | None:
    changed = rewritten({ORDERS_0: Assignment(replicas)}, controllers={KACTL}, load=load)
    return changed[ORDERS_0].replicas if changed else None


def test_the_place_goes_to_the_broker_with_the_fewest_replicas_that_is_not_in_the_list() -> None:
    assert placed(1, KACTL, 2, load={1: 0, 2: 0, 3: 9, 4: 8}) == (1, 4, 2)


def test_the_place_stays_where_it_is_so_a_preferred_leader_is_followed_by_a_preferred_leader() -> None:
    assert placed(KACTL, 1, load={1: 0, 2: 0}) == (2, 1)


def test_at_equal_load_the_lowest_id_is_taken() -> None:
    assert placed(KACTL, load={3: 1, 2: 1}) == (2,)


def test_where_no_broker_is_left_the_list_becomes_shorter() -> None:
    assert placed(1, KACTL, 2, load={1: 0, 2: 0}) == (1, 2)


def test_where_there_is_no_broker_at_all_it_stays() -> None:
    assert placed(KACTL, load={}) is None


def test_what_names_none_and_what_is_being_moved_stays() -> None:
    kept = {ORDERS_0: Assignment((1, 2)), ORDERS_1: Assignment((1, KACTL), adding=(KACTL,))}

    assert rewritten(kept, controllers={KACTL}, load={1: 0, 2: 0, 3: 0}) == {}


def test_ids_of_other_instances_go_too_and_are_never_taken() -> None:
    changed = rewritten({ORDERS_0: Assignment((KACTL, 901))}, controllers={KACTL, 901}, load={1: 5, 2: 6, 901: 0})

    assert changed[ORDERS_0].replicas == (1, 2)


def test_what_is_placed_counts_for_what_is_placed_next() -> None:
    many = {TopicPartition("orders", at): Assignment((KACTL,)) for at in range(6)}

    changed = rewritten(many, controllers={KACTL}, load={1: 2, 2: 0, 3: 0})

    assert [each.replicas for each in changed.values()] == [(2,), (3,), (2,), (3,), (1,), (2,)]


@given(
    replicas=st.lists(st.integers(0, 8), unique=True, max_size=6),
    controllers=st.sets(st.integers(0, 8), max_size=3),
    live=st.sets(st.integers(0, 8)),
)
def test_no_controller_and_nobody_twice_and_who_was_there_stays(
    replicas: list[int], controllers: set[int], live: set[int]
) -> None:
    changed = rewritten({ORDERS_0: Assignment(tuple(replicas))}, controllers=controllers, load=dict.fromkeys(live, 0))

    if ORDERS_0 not in changed:
        assert not controllers & set(replicas) or not (live | set(replicas)) - controllers
        return
    after = changed[ORDERS_0].replicas
    assert not controllers & set(after)
    assert len(set(after)) == len(after) <= len(replicas)
    assert [broker for broker in after if broker in replicas] == [each for each in replicas if each not in controllers]
    assert set(after) <= live | set(replicas)
    assert len(after) == len(replicas) or not live - controllers - set(after)
