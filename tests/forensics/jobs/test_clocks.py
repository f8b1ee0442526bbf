"""Clock offsets computed from bounds: the result includes the true offset, also if bounds contradict each other."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.forensics.jobs.clocks import Clock, Link, solve


def by_id(clocks: list[Clock]) -> dict[int, Clock]:
    return {each.broker: each for each in clocks}


@st.composite
def true_clocks(draw: st.DrawFn) -> tuple[dict[int, int], list[Link]]:
    """Draws offsets, and links with delays like those of messages."""
    offsets = draw(st.dictionaries(st.integers(0, 20), st.integers(-(10**10), 10**10), min_size=1, max_size=8))
    pairs = list(itertools.permutations(offsets, 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    delays = st.integers(0, 10**8)
    return offsets, [Link(a, b, offsets[b] - offsets[a] + draw(delays), draw(st.integers(1, 9))) for a, b in chosen]


@given(true_clocks())
def test_the_true_offset_is_always_within_the_bounds(known: tuple[dict[int, int], list[Link]]) -> None:
    offsets, links = known

    found = solve(offsets, links)

    assert [each.broker for each in found] == sorted(offsets)
    for each in found:
        truth = offsets[each.broker] - offsets[each.reference]
        assert each.low_us is None or each.low_us <= truth
        assert each.high_us is None or each.high_us >= truth
        assert each.how != "contradictory"


@given(true_clocks(), st.data())
def test_contradictions_of_one_clock_do_not_move_others(
    known: tuple[dict[int, int], list[Link]], data: st.DataObject
) -> None:
    offsets, links = known
    liar = data.draw(st.sampled_from(sorted(offsets)))
    wrong = [each._replace(bound_us=each.bound_us - 10**11) if liar in each[:2] else each for each in links]

    found = by_id(solve(offsets, wrong, jumped=[liar]))

    for each in found.values():
        if liar not in (each.broker, each.reference):
            truth = offsets[each.broker] - offsets[each.reference]
            assert each.low_us is None or each.low_us <= truth
            assert each.high_us is None or each.high_us >= truth


def test_offset_is_the_middle_of_both_directions() -> None:
    # Clock 2 is 1,000 ahead; messages to it took 10, and messages from it 30.
    found = by_id(solve([1, 2], [Link(1, 2, 1010, 5), Link(2, 1, -970, 4)]))

    assert found[1] == Clock(1, 1, 0, 0, 0, 9, "reference")
    assert found[2] == Clock(2, 1, 990, 970, 1010, 9, "bounds")


def test_clocks_that_may_agree_have_offset_zero() -> None:
    links = [Link(1, 2, 30, 5), Link(2, 1, 1800, 4), Link(1, 3, 1800, 1), Link(3, 1, -1, 1)]
    links += [Link(1, 4, 1800, 1), Link(4, 1, 0, 1), Link(1, 5, 0, 1), Link(5, 1, 1800, 1)]

    found = by_id(solve([1, 2, 3, 4, 5], links))

    assert (found[2].offset_us, found[2].low_us, found[2].high_us, found[2].how) == (0, -1800, 30, "bounds")
    assert (found[3].offset_us, found[3].low_us, found[3].high_us, found[3].how) == (900, 1, 1800, "bounds")
    assert [(found[at].offset_us, found[at].low_us, found[at].high_us) for at in (4, 5)] == [
        (0, 0, 1800),
        (0, -1800, 0),
    ]


def test_one_direction_takes_shortest_delay_for_zero() -> None:
    found = by_id(solve([1, 2, 3], [Link(1, 2, 1010, 5), Link(3, 1, 40, 1)]))

    assert found[2] == Clock(2, 1, 1010, None, 1010, 5, "one-sided")
    assert found[3] == Clock(3, 1, -40, -40, None, 1, "one-sided")


def test_unlinked_clock_has_offset_zero() -> None:
    found = by_id(solve([1, 2, 7], [Link(1, 2, 5, 1), Link(2, 1, 5, 1)]))

    assert found[7] == Clock(7, 1, 0, None, None, 0, "unknown")


def test_bounds_reach_over_a_third_clock() -> None:
    # 1 is the reference; 3 exchanges messages only with 2.
    links = [Link(1, 2, 105, 9), Link(2, 1, -95, 9), Link(2, 3, 55, 2), Link(3, 2, -45, 2)]

    found = by_id(solve([1, 2, 3], links))

    assert found[2].reference == 2
    assert (found[3].low_us, found[3].high_us) == (45, 55)
    assert (found[1].low_us, found[1].high_us) == (-105, -95)
    assert by_id(solve([1, 2, 3], [*links, Link(1, 4, 9, 99)]))[3] == Clock(3, 1, 150, 140, 160, 4, "bounds")


def test_contradictory_bounds_leave_the_range_between_them() -> None:
    # Before it was set back it was at least 500 ahead, afterwards at most 100.
    links = [Link(1, 2, 100, 3), Link(2, 1, -500, 3), Link(1, 3, 20, 9), Link(3, 1, -10, 9)]

    found = by_id(solve([1, 2, 3], links))

    assert found[2] == Clock(2, 1, 300, 100, 500, 6, "contradictory")
    assert found[3].how == "bounds"


def test_clocks_that_contradict_the_reference_are_marked() -> None:
    links = [Link(1, 2, 100, 9), Link(2, 1, -500, 9), Link(1, 3, 100, 9), Link(3, 1, -500, 9)]
    links += [Link(1, 4, 20, 9), Link(4, 1, -10, 9)]

    found = by_id(solve([1, 2, 3, 4], links))

    assert [each.how for each in found.values()] == ["reference", "contradictory", "contradictory", "bounds"]


def test_contradiction_of_three_clocks_is_widened() -> None:
    links = [Link(1, 2, 10, 9), Link(2, 3, 10, 5), Link(3, 1, -50, 5)]

    found = solve([1, 2, 3], links)

    for each in found:
        assert each.low_us is None or each.high_us is None or each.low_us <= each.high_us
    assert "contradictory" in {each.how for each in found}


def test_clock_that_was_set_back_links_no_others() -> None:
    links = [Link(1, 2, 5, 9), Link(2, 1, 5, 9), Link(2, 3, 5, 1), Link(3, 2, 5, 1), Link(1, 4, 5, 9)]

    assert by_id(solve([1, 2, 3, 4], links))[3].how == "bounds"
    assert by_id(solve([1, 2, 3, 4], links, jumped=[2]))[3].how == "unknown"


@pytest.mark.parametrize("brokers", [[], [4]])
def test_few_clocks_are_solved(brokers: list[int]) -> None:
    assert [each.how for each in solve(brokers, [])] == ["reference"] * len(brokers)
