"""The one form in which every bench writes what it found, so that runs can be kept, compared and published.

A file holds the figures of one bench: each under a path of names (`100000/warm/ready`), in one unit, with the value of
every run in the order of the runs; no figure is a mean of anything. Around them stands what is needed to make them
again, or to see why they cannot be: the machine, the versions, the settings, the seed.

    found = Found("failover", seed=1, settings={"brokers": 30})
    found.add("10000/warm/ready", "ms", 41.0)   # once for every run
    found.add("10000/warm/ready", "ms", 39.5)
    found.write(Path("failover.json"))
    read(Path("failover.json")).figures["10000/warm/ready"].median
"""

import datetime
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from .machine import Machine, machine, versions
from .spread import Spread, spread

Unit = Literal["s", "ms", "us", "ns", "B", "MB", "MB/s", "ratio", "count"]
UNITS: Final[tuple[Unit, ...]] = get_args(Unit)
# Of these, less is better; of a rate more is; of ratios and counts the bench alone knows.
COSTS: Final = frozenset({"s", "ms", "us", "ns", "B", "MB"})
RATES: Final = frozenset({"MB/s"})

# What a setting may be.
Setting = str | int | float | bool | None | tuple[str | int, ...]


class NotFigures(Exception):
    """A file does not hold figures; the message says which, why, and what would."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}; figures are written by the benches (python -m bench) with --output")
        self.path = path
        self.reason = reason


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that was measured.

    Attributes:
        unit: of every run.
        runs: at least one value, in the order of the runs; finite.
    """

    unit: Unit
    runs: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("a figure has at least one run")
        # JSON has no other numbers, but a bench may come up with them.
        if any(value != value or abs(value) == float("inf") for value in self.runs):
            raise ValueError(f"the runs of a figure are finite, not {self.runs}")

    @property
    def spread(self) -> Spread:
        return spread(self.runs)

    @property
    def median(self) -> float:
        return self.spread.median


class Results(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one run of one bench found.

    Attributes:
        what: the bench's name: `election`, `race`, ...
        made: when it ended, UTC, ISO 8601.
        versions: of kactl, of the commit, of what the figures depend on; by name.
        settings: what the bench was asked for; two runs with other settings measured other things.
        seed: of whatever was drawn by chance; 0 where nothing was.
        figures: by their paths, in the order in which they are to be shown.
    """

    what: str
    made: str
    machine: Machine
    versions: dict[str, str]
    settings: dict[str, Setting]
    seed: int
    figures: dict[str, Figure]

    def under(self, prefix: str) -> dict[str, Figure]:
        """The figures below a path, under what is left of their own."""
        return {name.removeprefix(f"{prefix}/"): each for name, each in self.figures.items() if _below(name, prefix)}


def _below(name: str, prefix: str) -> bool:
    return name.startswith(f"{prefix}/")


class Found:
    """Figures as they are found, run after run."""

    def __init__(self, what: str, *, seed: int = 0, settings: Mapping[str, Setting] | None = None) -> None:
        self.what = what
        self.seed = seed
        self.settings = dict(settings or {})
        self.versions: dict[str, str] = {}
        self._units: dict[str, Unit] = {}
        self._runs: dict[str, list[float]] = {}

    def add(self, name: str, unit: Unit, *values: float) -> None:
        """One more run of a figure, or several.

        Raises:
            ValueError: the figure was begun in another unit, or its name is no path.
        """
        if not name or name.startswith("/") or name.endswith("/"):
            raise ValueError(f"a figure is named by a path such as 10000/warm/ready, not {name!r}")
        if self._units.setdefault(name, unit) != unit:
            raise ValueError(f"{name} is measured in {self._units[name]}, not in {unit}")
        self._runs.setdefault(name, []).extend(float(value) for value in values)

    def add_all(self, prefix: str, unit: Unit, values: Mapping[str, float]) -> None:
        """One run of several figures."""
        for name, value in values.items():
            self.add(f"{prefix}/{name}", unit, value)

    def forget(self, prefix: str) -> None:
        """Leave out everything below a path, such as runs that only warmed something up."""
        for name in [name for name in self._units if _below(name, prefix)]:
            del self._units[name], self._runs[name]

    def runs(self, name: str) -> list[float]:
        return self._runs[name]

    def figures(self) -> dict[str, Figure]:
        """What was found so far."""
        return {name: Figure(unit, tuple(self._runs[name])) for name, unit in self._units.items()}

    def results(self, *, loop: str) -> Results:
        """Everything found so far, with where and of what it was found."""
        return Results(
            what=self.what,
            made=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            machine=machine(loop=loop),
            versions=versions() | self.versions,
            settings=self.settings,
            seed=self.seed,
            figures=self.figures(),
        )

    def write(self, path: Path, *, loop: str) -> Results:
        """Keep everything found so far in a file."""
        results = self.results(loop=loop)
        write(path, results)
        return results


def write(path: Path, results: Results) -> None:
    """Keep results, readable by people too; the folder is made where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")


def read(path: Path) -> Results:
    """What `write` wrote.

    Raises:
        NotFigures: there is no such file, or it is something else.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NotFigures(path, f"cannot be read ({error.strerror})") from error
    try:
        return msgspec.json.decode(data, type=Results)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotFigures(path, f"does not hold figures ({error})") from error


def read_all(paths: Iterable[Path]) -> dict[str, Results]:
    """Several files by what they measured, folders standing for the JSON files in them; the later made wins.

    Raises:
        NotFigures: one of them is something else.
    """
    files = [file for path in paths for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    found: dict[str, Results] = {}
    for results in sorted((read(file) for file in files), key=lambda each: each.made):
        found[results.what] = results
    return found
