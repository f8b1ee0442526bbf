"""Comparison of two runs of one benchmark: significant changes and noise.

    python -m bench.compare BEFORE.json AFTER.json [--alpha 0.05] [--at-least 0.05] [--only 100000/] [--all]

Each figure that both files contain is compared with a permutation test of the rank sums. If the two files did not
differ, every assignment of the runs to them would be equally likely. `p` is the share of assignments in which the two
sides are at least as far apart. It is counted exactly if there are few assignments, and sampled with a seed
otherwise. Ranks are used instead of values, so that one run on a busy disk counts only as the largest. A change is
reported if p is at most `--alpha` *and* the medians differ by `--at-least`; every other figure is `same`. With three
runs per side the smallest possible p is 0.1, so that the result is `too few runs`; four runs reach 0.03, five 0.008.

The runs of one file shared one process, and processes differ by chance: confirm a change of a few percent with two more
files. Of a hundred unchanged figures about five have a p below 0.05 by chance; `--at-least` excludes most of them.

Exit status: 0 if nothing became slower (or larger), 1 if something did, 2 if the files cannot be compared.
"""

import argparse
import enum
import itertools
import math
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from .figures import COSTS, RATES, Figure, NotFigures, Results, read
from .tables import number, plain

# Maximum number of assignments that are counted exactly; ten runs against ten have 184,756.
_WAYS_MAX: Final = 200_000
_DRAWN: Final = 20_000
_SEED: Final = 20


class Verdict(enum.Enum):
    """Result of the comparison of one figure."""

    SAME = "same"
    FASTER = "faster"
    SLOWER = "SLOWER"
    LARGER = "LARGER"
    SMALLER = "smaller"
    MORE = "more"
    LESS = "less"
    TOO_FEW = "too few runs"


# Results for which the exit status is 1.
BAD: Final = frozenset({Verdict.SLOWER, Verdict.LARGER})
_SIZES: Final = frozenset({"B", "MB"})


class Compared(msgspec.Struct, frozen=True):
    """Comparison of one figure. `change` is the ratio of the later to the earlier median, minus one."""

    name: str
    before: Figure
    after: Figure
    change: float
    p: float
    verdict: Verdict


def p_value(before: Sequence[float], after: Sequence[float]) -> float:
    """Returns the two-sided probability that runs without a difference are at least as far apart as these."""
    runs = [*before, *after]
    ranks, count = _ranks(runs), len(before)
    # Two-sided: the distance from the expected sum of this many ranks.
    expected = count * (len(runs) + 1) / 2
    seen = abs(sum(ranks[:count]) - expected)
    ways = math.comb(len(runs), count)
    if ways <= _WAYS_MAX:
        sums = (sum(picked) for picked in itertools.combinations(ranks, count))
        return sum(abs(each - expected) >= seen - 1e-9 for each in sums) / ways
    draw = random.Random(_SEED)
    far = sum(abs(sum(draw.sample(ranks, count)) - expected) >= seen - 1e-9 for _ in range(_DRAWN))
    # The observed assignment is one of them.
    return (far + 1) / (_DRAWN + 1)


def _ranks(values: Sequence[float]) -> list[float]:
    """Returns the ranks, 1 for the smallest; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    for _, group in itertools.groupby(enumerate(order, 1), key=lambda each: values[each[1]]):
        same = list(group)
        for _, at in same:
            ranks[at] = sum(rank for rank, _ in same) / len(same)
    return ranks


def compare(before: Figure, after: Figure, *, name: str, alpha: float, at_least: float) -> Compared:
    """Compares one figure; both runs have the same unit."""
    p = p_value(before.runs, after.runs)
    old, new = before.median, after.median
    change = new / old - 1 if old else math.inf if new else 0.0
    least_p = 2 / math.comb(len(before.runs) + len(after.runs), len(before.runs))
    if min(*before.runs, *after.runs) == max(*before.runs, *after.runs):
        verdict = Verdict.SAME  # for example a count, which has no noise
    elif least_p > alpha:
        verdict = Verdict.TOO_FEW
    elif p > alpha or abs(change) < at_least:
        verdict = Verdict.SAME
    else:
        verdict = _called(before.unit, rises=change > 0)
    return Compared(name, before, after, change, p, verdict)


def _called(unit: str, *, rises: bool) -> Verdict:
    if unit in _SIZES:
        return Verdict.LARGER if rises else Verdict.SMALLER
    if unit in COSTS:
        return Verdict.SLOWER if rises else Verdict.FASTER
    if unit in RATES:
        return Verdict.FASTER if rises else Verdict.SLOWER
    # Only the benchmark knows whether more is better.
    return Verdict.MORE if rises else Verdict.LESS


def compare_all(before: Results, after: Results, *, alpha: float, at_least: float, only: str = "") -> list[Compared]:
    """Compares all figures that both results have in the same unit, in the order of the first."""
    found = []
    for name, old in before.figures.items():
        new = after.figures.get(name)
        if new is not None and new.unit == old.unit and name.startswith(only):
            found.append(compare(old, new, name=name, alpha=alpha, at_least=at_least))
    return found


def differences(before: Results, after: Results) -> list[str]:
    """Returns other differences of the two results, which affect the comparison."""
    said = [f"machine: {each}" for each in before.machine.differences(after.machine)]
    for what, old, new in (
        ("version of", before.versions, after.versions),
        ("setting", before.settings, after.settings),
        ("seed", {"": before.seed}, {"": after.seed}),
    ):
        for name in dict.fromkeys((*old, *new)):
            mine, theirs = (each.get(name, "none") for each in (old, new))
            if mine != theirs:
                said.append(f"{what} {name}: {mine} / {theirs}".replace(" :", ":"))
    alone = [name for name in before.figures if name not in after.figures]
    added = [name for name in after.figures if name not in before.figures]
    for where, names in (("first", alone), ("second", added)):
        if names:
            said.append(f"only in the {where}: {len(names)} figures, such as {names[0]}")
    return said


def main(argv: Sequence[str] | None = None) -> int:
    """Compares, prints, and returns the exit status."""
    about = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=about)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--alpha", type=float, default=0.05, help="how unlikely a change must be by chance")
    parser.add_argument("--at-least", type=float, default=0.05, help="how large a change must be, 0.05 for 5 percent")
    parser.add_argument("--only", default="", help="figures whose path begins so")
    parser.add_argument("--all", action="store_true", help="list what is the same, too")
    asked = parser.parse_args(argv)
    try:
        before, after = read(asked.before), read(asked.after)
    except NotFigures as error:
        print(error, file=sys.stderr)
        return 2
    if before.what != after.what:
        print(f"{asked.before} holds figures of bench {before.what}, {asked.after} of {after.what}", file=sys.stderr)
        return 2
    for said in differences(before, after):
        print(said)
    found = compare_all(before, after, alpha=asked.alpha, at_least=asked.at_least, only=asked.only)
    if not found:
        print("the two have no figure in common", file=sys.stderr)
        return 2
    rows = [_row(each) for each in found if asked.all or each.verdict is not Verdict.SAME]
    print(plain(["", "unit", "before", "after", "change", "p", ""], rows))
    counts = {verdict: sum(each.verdict is verdict for each in found) for verdict in Verdict}
    print(", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count))
    return int(any(each.verdict in BAD for each in found))


def _row(each: Compared) -> list[str]:
    medians = (number(each.before.median), number(each.after.median))
    return [each.name, each.before.unit, *medians, f"{each.change:+.1%}", f"{each.p:.3f}", each.verdict.value]


if __name__ == "__main__":
    sys.exit(main())
