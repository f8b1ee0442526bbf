"""Seeds of the storms of one test run: new ones on every run, the same in all of its processes.

    STORM_SEED     the first seed, to repeat a run; one is drawn if it is not set
    STORM_COUNT    number of storms of each test file, 300 if it is not set; the fast tests include 50 of them

The process that starts the run draws the first seed and leaves it in the environment, where the workers of pytest-xdist
find it. It is printed at the head of the run and with every failure.
"""

import os
from random import SystemRandom
from typing import Final

FIRST: Final = "STORM_SEED"
COUNT: Final = "STORM_COUNT"
# About 45 s of processor time. The first FAST of them belong to the fast tests, the others are `slow`.
COUNT_DEFAULT: Final = 300
FAST: Final = 50
# Storms per test: a failure names its seed, and the rest of its block is skipped.
BLOCK: Final = 10
# Seeds that are drawn have six digits at the most.
_DRAWN_MAX: Final = 1_000_000


def draw() -> None:
    """Draw the first seed of this run, unless it is given."""
    os.environ.setdefault(FIRST, str(SystemRandom().randrange(_DRAWN_MAX)))


def first_seed() -> int:
    return int(os.environ[FIRST])


def count() -> int:
    return int(os.environ.get(COUNT, COUNT_DEFAULT))


def block_starts(of: int | None = None) -> range:
    """Returns the start of each block of storms, relative to the first seed; for at most `of` storms."""
    return range(0, count() if of is None else min(of, count()), BLOCK)


def block_of(begin: int) -> range:
    """Returns the seeds of one block."""
    return range(first_seed() + begin, first_seed() + begin + BLOCK)


def seed_headline() -> str:
    return f"storms: {FIRST}={first_seed()} {COUNT}={count()}"
