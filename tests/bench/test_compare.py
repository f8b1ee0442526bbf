"""Comparison of two runs: changes are reported, chance differences are not."""

import itertools
import random
from pathlib import Path

import msgspec
import pytest

from bench import compare
from bench.compare import Verdict, p_value
from bench.figures import Figure, Found, Results, Unit, write

# Times are skewed: most runs are close together, some are far above.
SKEW = 0.05


def noisy(draw: random.Random, *, count: int, centre: float) -> list[float]:
    return [centre * draw.lognormvariate(0, SKEW) for _ in range(count)]


def results(figures: dict[str, tuple[Unit, list[float]]], *, bench: str = "store") -> Results:
    collected = Found(bench, settings={"partitions": 10})
    for name, (unit, runs) in figures.items():
        collected.add(name, unit, *runs)
    return collected.results(loop="none")


def verdict(before: list[float], after: list[float], *, unit: Unit = "ms") -> Verdict:
    old, new = Figure(unit, tuple(before)), Figure(unit, tuple(after))
    return compare.compare(old, new, name="told", alpha=0.05, at_least=0.05).verdict


def test_p_is_the_share_of_assignments_at_least_as_far_apart() -> None:
    # Of the 20 ways to choose three of six, only the three smallest and the three largest are as far apart.
    assert p_value([1, 2, 3], [4, 5, 6]) == pytest.approx(2 / 20)
    assert p_value([1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(2 / 70)
    assert p_value([1, 2, 3, 4, 5], [1, 2, 3, 4, 5]) == 1


def test_equal_runs_share_their_ranks() -> None:
    # Ranks 1.5 1.5 3.5 | 3.5 5.5 5.5: equally far apart are the six choices with a sum of 6.5 or less, or 14.5 or more.
    ranks = (1.5, 1.5, 3.5, 3.5, 5.5, 5.5)
    far = sum(abs(sum(chosen) - 10.5) >= 4 for chosen in itertools.combinations(ranks, 3))

    assert p_value([1, 1, 2], [2, 3, 3]) == pytest.approx(far / 20)


def test_sampled_p_is_close_to_the_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(3)
    one, other = noisy(draw, count=7, centre=100), noisy(draw, count=7, centre=105)
    counted = p_value(one, other)

    monkeypatch.setattr(compare, "_WAYS_MAX", 0)

    assert 0.01 < counted < 0.9
    assert p_value(one, other) == pytest.approx(counted, abs=0.02)
    assert p_value(one, other) == p_value(one, other), "the same files must give the same answer"


def test_a_real_shift_is_reported() -> None:
    draw = random.Random(11)

    verdicts = [verdict(noisy(draw, count=5, centre=100), noisy(draw, count=5, centre=130)) for _ in range(200)]

    assert verdicts.count(Verdict.SLOWER) >= 190
    assert Verdict.FASTER not in verdicts


def test_noise_is_reported_no_more_often_than_alpha() -> None:
    draw = random.Random(12)
    pairs = [(noisy(draw, count=5, centre=100), noisy(draw, count=5, centre=100)) for _ in range(400)]

    called = [verdict(*pair) for pair in pairs].count(Verdict.SAME)
    by_chance = [p_value(*pair) <= 0.05 for pair in pairs].count(True)

    assert called >= 380
    # About one in twenty by chance, as alpha requires.
    assert 4 <= by_chance <= 32


def test_a_shift_below_the_minimum_is_not_reported() -> None:
    before = [100.0, 100.1, 100.2, 100.3, 100.4]

    assert verdict(before, [time * 1.02 for time in before]) is Verdict.SAME
    assert verdict(before, [time * 1.08 for time in before]) is Verdict.SLOWER


def test_three_runs_per_side_are_too_few() -> None:
    assert verdict([1, 2, 3], [100, 200, 300]) is Verdict.TOO_FEW
    assert verdict([1, 2, 3, 4], [100, 200, 300, 400]) is Verdict.SLOWER


def test_outlier_counts_only_by_its_rank() -> None:
    assert verdict([10, 11, 12, 13, 14], [10.5, 11.5, 12.5, 13.5, 9_000]) is Verdict.SAME


@pytest.mark.parametrize(
    ("unit", "rises", "falls"),
    [
        ("ms", Verdict.SLOWER, Verdict.FASTER),
        ("MB/s", Verdict.FASTER, Verdict.SLOWER),
        ("MB", Verdict.LARGER, Verdict.SMALLER),
        ("ratio", Verdict.MORE, Verdict.LESS),
    ],
)
def test_unit_determines_whether_more_is_better(unit: Unit, rises: Verdict, falls: Verdict) -> None:
    low, high = [10.0, 11.0, 12.0, 13.0], [20.0, 21.0, 22.0, 23.0]

    assert verdict(low, high, unit=unit) is rises
    assert verdict(high, low, unit=unit) is falls


def test_equal_counts_are_the_same() -> None:
    assert verdict([7], [7], unit="count") is Verdict.SAME


# -- command line ------------------------------------------------------------------------------------------------------

SLOW: dict[str, tuple[Unit, list[float]]] = {"10/told": ("ms", [20, 21, 22, 23]), "10/sent": ("MB", [5.0])}
FAST: dict[str, tuple[Unit, list[float]]] = {"10/told": ("ms", [10, 11, 12, 13]), "10/sent": ("MB", [5.0])}


def kept(path: Path, figures: Results) -> str:
    write(path, figures)
    return str(path)


def test_exit_status_is_1_if_a_figure_became_slower(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow, fast = kept(tmp_path / "slow.json", results(SLOW)), kept(tmp_path / "fast.json", results(FAST))

    assert compare.main([fast, slow]) == 1
    assert "SLOWER" in capsys.readouterr().out
    assert compare.main([slow, fast]) == 0
    assert "faster" in capsys.readouterr().out
    assert compare.main([slow, slow]) == 0
    assert compare.main([fast, slow, "--only", "10/sent"]) == 0


def test_other_differences_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = results(SLOW)
    machine = msgspec.structs.replace(one.machine, cores=one.machine.cores + 6)
    other = msgspec.structs.replace(one, machine=machine, settings={"partitions": 20}, seed=5)

    compare.main([kept(tmp_path / "a.json", one), kept(tmp_path / "b.json", other)])

    output = capsys.readouterr().out
    assert f"machine: cores {one.machine.cores} / {one.machine.cores + 6}" in output
    assert "setting partitions: 10 / 20" in output
    assert "seed: 0 / 5" in output


def test_incomparable_files_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = kept(tmp_path / "slow.json", results(SLOW))
    other = kept(tmp_path / "other.json", results(SLOW, bench="latency"))
    nothing = kept(tmp_path / "nothing.json", results({"else": ("ms", [1.0])}))

    for pair, reason in (
        ((slow, str(tmp_path / "gone.json")), "No such file"),
        ((slow, other), "of latency"),
        ((slow, nothing), "no figure in common"),
    ):
        assert compare.main(list(pair)) == 2
        assert reason in capsys.readouterr().err
