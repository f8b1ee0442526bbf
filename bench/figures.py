"""File format of benchmark results, for storing, comparing and publishing runs.

A file contains the figures of one benchmark: each under a path of names (`100000/warm/ready`), in one unit, with the
value of every run in the order of the runs. No figure is a mean. The file also contains everything that is needed to
repeat the runs: the machine, the versions, the settings, the seed.

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
# Units for which less is better. More is better for rates; for ratios and counts it depends on the benchmark.
COSTS: Final = frozenset({"s", "ms", "us", "ns", "B", "MB"})
RATES: Final = frozenset({"MB/s"})

# Types of settings.
Setting = str | int | float | bool | None | tuple[str | int, ...]


class NotFigures(Exception):
    """Raised if a file does not contain figures; the message names the file, the reason and the expected content."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}; figures are written by the benches (python -m bench) with --output")
        self.path = path
        self.reason = reason


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One measured quantity.

    Attributes:
        unit: of every run.
        runs: at least one value, in the order of the runs; finite.
    """

    unit: Unit
    runs: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("a figure has at least one run")
        # JSON has no other numbers, but a benchmark may compute them.
        if any(value != value or abs(value) == float("inf") for value in self.runs):
            raise ValueError(f"the runs of a figure are finite, not {self.runs}")

    @property
    def spread(self) -> Spread:
        return spread(self.runs)

    @property
    def median(self) -> float:
        return self.spread.median


class Results(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Results of one run of one benchmark.

    Attributes:
        what: name of the benchmark: `election`, `race`, ...
        made: time of its end, UTC, ISO 8601.
        versions: versions of kactl, of its commit and of relevant packages, by name.
        settings: options of the benchmark; runs with different settings are not comparable.
        seed: seed of random values; 0 if there are none.
        figures: figures by path, in display order.
    """

    what: str
    made: str
    machine: Machine
    versions: dict[str, str]
    settings: dict[str, Setting]
    seed: int
    figures: dict[str, Figure]

    def under(self, prefix: str) -> dict[str, Figure]:
        """Returns the figures below a path, by the rest of their own paths."""
        return {name.removeprefix(f"{prefix}/"): each for name, each in self.figures.items() if _below(name, prefix)}


def _below(name: str, prefix: str) -> bool:
    return name.startswith(f"{prefix}/")


class Found:
    """Figures of a benchmark that is still running."""

    def __init__(self, what: str, *, seed: int = 0, settings: Mapping[str, Setting] | None = None) -> None:
        self.what = what
        self.seed = seed
        self.settings = dict(settings or {})
        self.versions: dict[str, str] = {}
        self._units: dict[str, Unit] = {}
        self._runs: dict[str, list[float]] = {}

    def add(self, name: str, unit: Unit, *values: float) -> None:
        """Adds one or more runs of a figure.

        Raises:
            ValueError: the figure has another unit, or its name is not a path.
        """
        if not name or name.startswith("/") or name.endswith("/"):
            raise ValueError(f"a figure is named by a path such as 10000/warm/ready, not {name!r}")
        if self._units.setdefault(name, unit) != unit:
            raise ValueError(f"{name} is measured in {self._units[name]}, not in {unit}")
        self._runs.setdefault(name, []).extend(float(value) for value in values)

    def add_all(self, prefix: str, unit: Unit, values: Mapping[str, float]) -> None:
        """Adds one run of several figures."""
        for name, value in values.items():
            self.add(f"{prefix}/{name}", unit, value)

    def forget(self, prefix: str) -> None:
        """Removes everything below a path, for example warm-up runs."""
        for name in [name for name in self._units if _below(name, prefix)]:
            del self._units[name], self._runs[name]

    def runs(self, name: str) -> list[float]:
        return self._runs[name]

    def figures(self) -> dict[str, Figure]:
        """Returns the figures so far."""
        return {name: Figure(unit, tuple(self._runs[name])) for name, unit in self._units.items()}

    def results(self, *, loop: str) -> Results:
        """Returns the figures so far, with machine, versions and settings."""
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
        """Writes the figures so far to a file."""
        results = self.results(loop=loop)
        write(path, results)
        return results


def write(path: Path, results: Results) -> None:
    """Writes results as indented JSON, and creates the folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")


def read(path: Path) -> Results:
    """Returns results that `write` wrote.

    Raises:
        NotFigures: the file does not exist, or has another content.
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
    """Returns several results by benchmark; a folder is its JSON files, and the later result of a benchmark wins.

    Raises:
        NotFigures: one of the files has another content.
    """
    files = [file for path in paths for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    found: dict[str, Results] = {}
    for results in sorted((read(file) for file in files), key=lambda each: each.made):
        found[results.what] = results
    return found
