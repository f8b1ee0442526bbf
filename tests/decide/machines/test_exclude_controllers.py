"""Replacement of controller ids in assignments: the replacement broker, and the case without one."""

from hypothesis import given
from hypothesis import strategies as st

from kactl.decide.machines.exclude_controllers import rewritten
from kactl.model import Assignment, TopicPartition

KACTL = 900
ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def placed(*replicas: int, load: dict[int, int], racks: dict[int, str | None] | None = None) -> tuple[int, ...] | None:
    changed = rewritten({ORDERS_0: Assignment(replicas)}, controllers={KACTL}, load=load, racks=racks or {})
    return changed[ORDERS_0].replicas if changed else None


def test_controller_is_replaced_by_the_least_loaded_unlisted_broker() -> None:
    assert placed(1, KACTL, 2, load={1: 0, 2: 0, 3: 9, 4: 8}) == (1, 4, 2)


def test_replacement_keeps_the_position_in_the_list() -> None:
    assert placed(KACTL, 1, load={1: 0, 2: 0}) == (2, 1)


def test_lowest_id_is_chosen_at_equal_load() -> None:
    assert placed(KACTL, load={3: 1, 2: 1}) == (2,)


def test_replacement_is_of_a_rack_that_the_list_lacks() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "b", 3: "c", 4: "a", 5: "c"}

    assert placed(KACTL, 1, 2, load={1: 0, 2: 0, 3: 7, 4: 0, 5: 6}, racks=racks) == (5, 1, 2)
    assert placed(1, 2, KACTL, 3, load={1: 0, 2: 0, 3: 7, 4: 0, 5: 6}, racks=racks) == (1, 2, 4, 3)


def test_brokers_without_racks_are_chosen_by_load_alone() -> None:
    assert placed(1, KACTL, load={1: 0, 2: 5, 3: 4}, racks={1: None, 2: None, 3: None}) == (1, 3)


def test_list_shrinks_if_no_broker_is_left() -> None:
    assert placed(1, KACTL, 2, load={1: 0, 2: 0}) == (1, 2)


def test_assignment_stays_if_there_is_no_broker() -> None:
    assert placed(KACTL, load={}) is None


def test_assignment_without_controller_or_in_reassignment_stays() -> None:
    assignments = {ORDERS_0: Assignment((1, 2)), ORDERS_1: Assignment((1, KACTL), adding=(KACTL,))}

    assert rewritten(assignments, controllers={KACTL}, load={1: 0, 2: 0, 3: 0}) == {}


def test_other_instances_are_replaced_and_never_chosen() -> None:
    changed = rewritten({ORDERS_0: Assignment((KACTL, 901))}, controllers={KACTL, 901}, load={1: 5, 2: 6, 901: 0})

    assert changed[ORDERS_0].replicas == (1, 2)


def test_placed_replicas_count_as_load() -> None:
    many = {TopicPartition("orders", number): Assignment((KACTL,)) for number in range(6)}

    changed = rewritten(many, controllers={KACTL}, load={1: 2, 2: 0, 3: 0})

    assert [assignment.replicas for assignment in changed.values()] == [(2,), (3,), (2,), (3,), (1,), (2,)]


@given(
    replicas=st.lists(st.integers(0, 8), unique=True, max_size=6),
    controllers=st.sets(st.integers(0, 8), max_size=3),
    live=st.sets(st.integers(0, 8)),
)
def test_result_has_no_controller_no_duplicate_and_keeps_brokers(
    replicas: list[int], controllers: set[int], live: set[int]
) -> None:
    changed = rewritten({ORDERS_0: Assignment(tuple(replicas))}, controllers=controllers, load=dict.fromkeys(live, 0))

    if ORDERS_0 not in changed:
        assert not controllers & set(replicas) or not (live | set(replicas)) - controllers
        return
    after = changed[ORDERS_0].replicas
    assert not controllers & set(after)
    assert len(set(after)) == len(after) <= len(replicas)
    assert [broker for broker in after if broker in replicas] == [
        broker_id for broker_id in replicas if broker_id not in controllers
    ]
    assert set(after) <= live | set(replicas)
    assert len(after) == len(replicas) or not live - controllers - set(after)
