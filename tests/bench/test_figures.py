"""Figures survive being written and read, and a file that is something else says so."""

import argparse
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.figures import COSTS, RATES, UNITS, Figure, Found, NotFigures, read, read_all, write
from bench.machine import machine
from bench.run import settings_of
from bench.spread import ratio, spread
from bench.tables import listed, number, plain, runs

names = st.text("abc/ 0123456789", min_size=1)
finite = st.floats(allow_nan=False, allow_infinity=False, width=64)


def found() -> Found:
    some = Found("failover", seed=7, settings={"brokers": 30, "stores": ("sqlite", "memory"), "full": False})
    some.add("10000/warm/told", "ms", 41.0, 39.5)
    some.add("10000/warm/requests", "count", 60)
    some.add("10000/cold/told", "ms", 99.0)
    return some


RESULTS = found().results(loop="none")


def test_what_is_written_is_read_again_with_where_it_was_found(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "failover.json"

    written = found().write(path, loop="uvloop")

    again = read(path)
    assert again == written
    assert again.figures["10000/warm/told"] == Figure("ms", (41.0, 39.5))
    assert list(again.figures) == ["10000/warm/told", "10000/warm/requests", "10000/cold/told"]
    assert again.settings == {"brokers": 30, "stores": ("sqlite", "memory"), "full": False}
    assert (again.what, again.seed, again.machine) == ("failover", 7, machine(loop="uvloop"))
    assert {"kactl", "commit", "numpy", "msgspec"} <= again.versions.keys()


@given(
    figures=st.dictionaries(names, st.builds(Figure, st.sampled_from(UNITS), st.lists(finite, min_size=1).map(tuple)))
)
def test_every_run_is_kept_exactly(tmp_path_factory: pytest.TempPathFactory, figures: dict[str, Figure]) -> None:
    path = tmp_path_factory.mktemp("figures") / "store.json"

    write(path, msgspec.structs.replace(RESULTS, figures=figures))

    assert read(path).figures == figures


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "does not hold figures"),
        ("[1, 2]", "Expected `object`"),
        ('{"figures": {}}', "missing required field"),
        ("\xff", "does not hold figures"),
    ],
)
def test_a_file_that_is_something_else_is_named_with_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, encoding="latin-1")

    with pytest.raises(NotFigures, match=reason) as raised:
        read(path)

    assert str(path) in str(raised.value)
    assert "python -m bench" in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFigures, match="No such file"):
        read(tmp_path / "nothing.json")


def test_a_file_with_a_figure_without_runs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "failover.json"
    found().write(path, loop="none")
    path.write_text(path.read_text().replace("99.0", ""))

    with pytest.raises(NotFigures, match="at least one run"):
        read(path)


def test_of_two_runs_of_one_bench_the_later_counts(tmp_path: Path) -> None:
    results = found().results(loop="none")
    write(tmp_path / "a.json", msgspec.structs.replace(results, made="2026-02-01T00:00:00+00:00", seed=2))
    write(tmp_path / "b.json", msgspec.structs.replace(results, made="2026-01-01T00:00:00+00:00", seed=1))
    write(tmp_path / "c.json", msgspec.structs.replace(results, what="store"))

    every = read_all([tmp_path])

    assert every.keys() == {"failover", "store"}
    assert every["failover"].seed == 2


def test_a_figure_keeps_its_unit() -> None:
    some = found()

    with pytest.raises(ValueError, match="measured in ms, not in s"):
        some.add("10000/warm/told", "s", 1.0)


def test_a_figure_is_named_by_a_path() -> None:
    for name in ("", "/a", "a/"):
        with pytest.raises(ValueError, match="named by a path"):
            found().add(name, "ms", 1.0)


def test_what_only_warmed_up_is_forgotten() -> None:
    some = found()
    some.add("warm-up/10000/told", "ms", 3.0)

    some.forget("warm-up")

    assert list(some.figures()) == list(found().figures())


def test_the_figures_below_a_path_have_what_is_left_of_theirs() -> None:
    below = found().results(loop="none").under("10000/warm")

    assert list(below) == ["told", "requests"]


def test_every_unit_is_a_cost_a_rate_or_for_the_bench_to_judge() -> None:
    assert set(UNITS) == COSTS | RATES | {"ratio", "count"}


# -- arithmetic --------------------------------------------------------------------------------------------------------


def test_the_median_stands_between_the_quartiles_and_these_between_the_extremes() -> None:
    known = spread([9.0, 1.0, 5.0, 3.0, 7.0])

    assert (known.count, known.least, known.low, known.median, known.high, known.greatest) == (5, 1, 3, 5, 7, 9)
    assert known.interquartile == 4


def test_a_single_run_is_its_own_spread() -> None:
    known = spread([4.0])

    assert (known.least, known.low, known.median, known.high, known.greatest) == (4, 4, 4, 4, 4)


def test_without_a_run_there_is_no_median() -> None:
    with pytest.raises(ValueError, match="no run"):
        spread([])


def test_a_ratio_is_of_medians_and_spreads_from_the_worst_pairing_to_the_best() -> None:
    known = ratio([20.0, 30.0, 24.0], [2.0, 3.0, 4.0])

    assert (known.value, known.least, known.greatest) == (8.0, 5.0, 15.0)


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=6), st.lists(st.floats(0.1, 1e6), min_size=1, max_size=6))
def test_no_pairing_of_two_runs_lies_outside_of_a_ratios_spread(above: list[float], below: list[float]) -> None:
    known = ratio(above, below)

    assert known.least <= known.value <= known.greatest
    assert all(known.least <= one / other <= known.greatest for one in above for other in below)


def test_nothing_is_a_multiple_of_zero() -> None:
    with pytest.raises(ValueError, match="multiples of 0"):
        ratio([1.0], [1.0, 0.0])


# -- as people read them -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.01234, "0.0123"), (1.005, "1.00"), (41.04, "41.0"), (412.4, "412"), (1234567.0, "1,234,567")],
)
def test_numbers_have_three_digits_that_count(value: float, text: str) -> None:
    assert number(value) == text


def test_a_figure_is_its_median_with_what_it_lies_between() -> None:
    assert runs(Figure("ms", (3.0, 1.0, 2.0))) == "2.00 (1.00-3.00)"
    assert runs(Figure("ms", (2.0, 2.0))) == "2.00"
    assert runs(Figure("count", (1234.0,))) == "1,234"


def test_a_table_stands_in_columns() -> None:
    assert plain(["", "ms"], [["a", "1"], [], ["long", "234"]]) == "       ms\na       1\n\nlong  234"


def test_the_list_of_all_figures_says_how_many_runs_each_has() -> None:
    lines = listed(found().figures()).splitlines()

    assert [line.split()[0] for line in lines[1:]] == ["10000/warm/told", "10000/warm/requests", "10000/cold/told"]
    assert [line.split()[-1] for line in lines[1:]] == ["2", "1", "1"]


def test_settings_are_what_was_asked_for_but_no_places() -> None:
    asked = argparse.Namespace(lines=(10, 20), runs=3, only=None, logs=Path("/home/somebody/logs"))

    assert settings_of(asked) == {"lines": (10, 20), "runs": 3, "only": None}
