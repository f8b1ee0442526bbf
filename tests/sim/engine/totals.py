"""Sums over many runs: hours alone say nothing, so faults, failovers and probes stand next to them."""

from pathlib import Path
from typing import Final, Protocol

import msgspec

FILE: Final = "totals.json"
_MS_PER_HOUR: Final = 3_600_000
# Minima of probes are given for so many hours, and are not judged below.
PROBE_HOURS: Final = 100
# Names of two probes: a commit that the fence refused, and the end of the names of elections.
FENCED: Final = "PRB-01"
LED: Final = ">online"


class Result(Protocol):
    """Result of one seed, as far as it is summed."""

    @property
    def signature(self) -> str: ...

    @property
    def passed(self) -> bool: ...

    @property
    def virtual_ms(self) -> float: ...

    @property
    def cluster_ms(self) -> float: ...

    @property
    def cpu_s(self) -> float: ...

    @property
    def steps(self) -> int: ...

    @property
    def faults(self) -> int: ...

    @property
    def failovers(self) -> int: ...

    @property
    def probes(self) -> dict[str, int]: ...


class Totals(msgspec.Struct, kw_only=True):
    """Sums over the runs of one search.

    Attributes:
        hours: cluster-hours; see `exploring.cluster_ms`.
        virtual_hours: of all runs, the times without load or faults included.
        signatures: number of failed runs by signature.
        probes: hits by number.
        minima: hits that each probe must have in 100 hours, as far as they are known.
    """

    runs: int = 0
    hours: float = 0.0
    virtual_hours: float = 0.0
    cpu_s: float = 0.0
    steps: int = 0
    faults: int = 0
    failovers: int = 0
    signatures: dict[str, int] = {}
    probes: dict[str, int] = {}
    minima: dict[str, int] = {}

    @property
    def violations(self) -> int:
        return sum(self.signatures.values()) - self.non_deterministic

    @property
    def elections(self) -> int:
        """Returns how often a partition came online, or changed its leader while it was."""
        return sum(hits for name, hits in self.probes.items() if name.startswith("partition ") and name.endswith(LED))

    @property
    def non_deterministic(self) -> int:
        return self.signatures.get("non-determinism", 0)

    def add(self, result: Result) -> None:
        self.runs += 1
        self.hours += result.cluster_ms / _MS_PER_HOUR
        self.virtual_hours += result.virtual_ms / _MS_PER_HOUR
        self.cpu_s += result.cpu_s
        self.steps += result.steps
        self.faults += result.faults
        self.failovers += result.failovers
        for number, hits in result.probes.items():
            self.probes[number] = self.probes.get(number, 0) + hits
        if not result.passed:
            self.signatures[result.signature] = self.signatures.get(result.signature, 0) + 1

    def missed_probes(self) -> list[str]:
        """Returns one line for each probe below its minimum; none for a search that was too short to tell."""
        if self.hours < PROBE_HOURS:
            return []
        share = self.hours / PROBE_HOURS
        return [
            f"{number} was reached {self.probes.get(number, 0)} times in {self.hours:.0f} cluster-hours, and at least "
            f"{minimum * share:.0f} are required: the search has gone soft; raise the weight of what leads to it"
            for number, minimum in self.minima.items()
            if self.probes.get(number, 0) < minimum * share
        ]

    def lines(self) -> list[str]:
        """Returns the sums in words."""
        speed = self.hours * 3600 / self.cpu_s if self.cpu_s else 0.0
        return [
            f"{self.runs} runs, {self.hours:.2f} cluster-hours (of {self.virtual_hours:.2f} hours) in {self.cpu_s:.0f} "
            f"CPU-s ({speed:.0f} s per CPU-s), {self.steps:,} steps",
            f"{self.faults:,} faults, {self.failovers:,} controller elections, {self.elections:,} elections of "
            f"leaders, {self.probes.get(FENCED, 0):,} commits refused by the fence",
            *(f"{count} x {signature}" for signature, count in sorted(self.signatures.items())),
            *(["no violation"] if not self.signatures else []),
        ]

    def save(self, folder: Path) -> None:
        """Write the sums into a folder, for `python -m tests.sim report`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(self)))


def load(folder: Path) -> Totals | None:
    """Returns the sums of the last search into a folder; None if there was none.

    Raises:
        ValueError: the file is damaged.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Totals)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path}: not the sums of a search: {error}: remove it") from error
