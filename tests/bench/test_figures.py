"""Reading and writing of results files; other files are rejected."""

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


def test_results_are_read_back_with_their_machine(tmp_path: Path) -> None:
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
def test_every_run_is_stored_exactly(tmp_path_factory: pytest.TempPathFactory, figures: dict[str, Figure]) -> None:
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
def test_error_for_another_file_has_its_name_and_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, encoding="latin-1")

    with pytest.raises(NotFigures, match=reason) as raised:
        read(path)

    assert str(path) in str(raised.value)
    assert "python -m bench" in str(raised.value)


def test_error_for_a_missing_file_has_its_name(tmp_path: Path) -> None:
    with pytest.raises(NotFigures, match="No such file"):
        read(tmp_path / "nothing.json")


def test_figure_without_runs_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "failover.json"
    found().write(path, loop="none")
    path.write_text(path.read_text().replace("99.0", ""))

    with pytest.raises(NotFigures, match="at least one run"):
        read(path)


def test_later_of_two_results_replaces_the_earlier(tmp_path: Path) -> None:
    results = found().results(loop="none")
    write(tmp_path / "a.json", msgspec.structs.replace(results, made="2026-02-01T00:00:00+00:00", seed=2))
    write(tmp_path / "b.json", msgspec.structs.replace(results, made="2026-01-01T00:00:00+00:00", seed=1))
    write(tmp_path / "c.json", msgspec.structs.replace(results, what="store"))

    every = read_all([tmp_path])

    assert every.keys() == {"failover", "store"}
    assert every["failover"].seed == 2


def test_figure_keeps_its_unit() -> None:
    some = found()

    with pytest.raises(ValueError, match="measured in ms, not in s"):
        some.add("10000/warm/told", "s", 1.0)


def test_figure_is_named_by_a_path() -> None:
    for name in ("", "/a", "a/"):
        with pytest.raises(ValueError, match="named by a path"):
            found().add(name, "ms", 1.0)


def test_warm_up_runs_are_removed() -> None:
    some = found()
    some.add("warm-up/10000/told", "ms", 3.0)

    some.forget("warm-up")

    assert list(some.figures()) == list(found().figures())


def test_figures_below_a_path_have_relative_paths() -> None:
    below = found().results(loop="none").under("10000/warm")

    assert list(below) == ["told", "requests"]


def test_every_unit_has_a_direction_or_none() -> None:
    assert set(UNITS) == COSTS | RATES | {"ratio", "count"}


# -- arithmetic --------------------------------------------------------------------------------------------------------


def test_median_and_quartiles_are_ordered() -> None:
    known = spread([9.0, 1.0, 5.0, 3.0, 7.0])

    assert (known.count, known.least, known.low, known.median, known.high, known.greatest) == (5, 1, 3, 5, 7, 9)
    assert known.interquartile == 4


def test_single_run_is_its_own_spread() -> None:
    known = spread([4.0])

    assert (known.least, known.low, known.median, known.high, known.greatest) == (4, 4, 4, 4, 4)


def test_median_without_runs_is_an_error() -> None:
    with pytest.raises(ValueError, match="no run"):
        spread([])


def test_ratio_spread_is_from_worst_to_best_pairing() -> None:
    known = ratio([20.0, 30.0, 24.0], [2.0, 3.0, 4.0])

    assert (known.value, known.least, known.greatest) == (8.0, 5.0, 15.0)


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=6), st.lists(st.floats(0.1, 1e6), min_size=1, max_size=6))
def test_ratio_spread_contains_every_pairing(above: list[float], below: list[float]) -> None:
    known = ratio(above, below)

    assert known.least <= known.value <= known.greatest
    assert all(known.least <= one / other <= known.greatest for one in above for other in below)


def test_ratio_to_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="multiples of 0"):
        ratio([1.0], [1.0, 0.0])


# -- formatting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.01234, "0.0123"), (1.005, "1.00"), (41.04, "41.0"), (412.4, "412"), (1234567.0, "1,234,567")],
)
def test_numbers_have_three_significant_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_figure_is_shown_as_median_and_range() -> None:
    assert runs(Figure("ms", (3.0, 1.0, 2.0))) == "2.00 (1.00-3.00)"
    assert runs(Figure("ms", (2.0, 2.0))) == "2.00"
    assert runs(Figure("count", (1234.0,))) == "1,234"


def test_table_columns_are_aligned() -> None:
    assert plain(["", "ms"], [["a", "1"], [], ["long", "234"]]) == "       ms\na       1\n\nlong  234"


def test_list_of_figures_has_the_number_of_runs() -> None:
    lines = listed(found().figures()).splitlines()

    assert [line.split()[0] for line in lines[1:]] == ["10000/warm/told", "10000/warm/requests", "10000/cold/told"]
    assert [line.split()[-1] for line in lines[1:]] == ["2", "1", "1"]


def test_settings_contain_options_without_paths() -> None:
    options = argparse.Namespace(lines=(10, 20), runs=3, only=None, logs=Path("/home/user/logs"))

    assert settings_of(options) == {"lines": (10, 20), "runs": 3, "only": None}
