"""Generator of docs/evidence/track-record.md from tests/sim/track.toml and the corpus.

`python -m tests.support.track_record` writes the page; a test fails while the page differs from its sources.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.sim import mutant_search
from tests.sim.engine import corpus, mutants
from tests.sim.mutant_search import Found

from .tree import ROOT

PAGE: Final = ROOT / "docs" / "evidence" / "track-record.md"
FOLDER: Final = ROOT / "tests" / "sim"
BY_SIMULATION: Final = ("simulation", "exhaustive", "mutant")
FOUND_BY: Final = (*BY_SIMULATION, "real cluster", "review", "user")
_NONE: Final = "–"


class Search(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One search: cluster-hours, and what happened in them.

    Attributes:
        cpu_s: None if it was not measured.
        participants: how many of the runs had participants.
    """

    release: str
    world: str
    cluster_hours: float
    runs: int
    faults: int
    failovers: int
    commit: str
    cpu_s: float | None = None
    participants: int = 0
    violations: str = ""
    probes: dict[str, int] = {}


class Bug(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One bug; see track.toml."""

    invariant: str
    broke: str
    found_by: str
    how: str
    fixed: str = ""
    found: str = ""
    cpu_s: float | None = None
    versions: str = ""
    why_not_found: str = ""
    action: str = ""


class Track(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    bug: list[Bug]
    search: list[Search] = []


def track(folder: Path = FOLDER) -> Track:
    """Returns the content of track.toml.

    Raises:
        ValueError: an entry is incomplete. The text names it.
    """
    document = tomllib.loads((folder / "track.toml").read_text(encoding="utf-8"))
    found = msgspec.convert(document, Track)
    for bug in found.bug:
        if bug.found_by not in FOUND_BY:
            raise ValueError(f"{bug.broke!r} was found by {bug.found_by!r}: choose one of {', '.join(FOUND_BY)}")
        if bug.found_by not in BY_SIMULATION and not (bug.why_not_found and bug.action):
            raise ValueError(f"{bug.broke!r} was not found by simulation: write why_not_found and action")
    return found


def bugs(folder: Path = FOLDER) -> list[Bug]:
    """Returns the bugs of track.toml, then those of the corpus that it does not contain (by the commit of the fix)."""
    listed = track(folder).bug
    fixed = {(bug.invariant, bug.fixed[:7]) for bug in listed}
    return listed + [
        _of_entry(entry)
        for entry in corpus.load_all(folder / "corpus")
        if entry.found is not None and (entry.broke, entry.fixed[:7]) not in fixed
    ]


def _of_entry(entry: corpus.Entry) -> Bug:
    assert entry.found is not None
    return Bug(
        invariant=entry.broke,
        broke=entry.sentence,
        found_by="simulation",
        how=entry.name if entry.found.seed is None else f"seed {entry.found.seed}, {entry.name}",
        fixed=entry.fixed,
        found=entry.found.commit,
        cpu_s=entry.found.cpu_s,
    )


def page(folder: Path = FOLDER) -> str:
    """Returns the text of the page."""
    searches = track(folder).search
    known = bugs(folder)
    found = [bug for bug in known if bug.found_by in BY_SIMULATION]
    missed = [bug for bug in known if bug.found_by not in BY_SIMULATION]
    return f"""# Track record of the simulator

`python -m tests.support.track_record` generates this page from `tests/sim/track.toml` and the scripts in
`tests/sim/corpus/`. It lists what was searched, and every known bug of the controller: those that the simulator found,
and those that it should have found.

## Searches

{_searches(searches)}

A cluster-hour is one hour of virtual time with at least 3 brokers and 2 controller instances, under load and faults.
Hours alone say nothing: faults and controller elections stand next to them. At least
{sum(search.participants for search in searches):,} runs had participants as brokers; the first searches did not count
them. [Reliability](reliability.md) names the probes.

## Bugs

{len(known)} bugs, {len(found)} found by simulation or by exhaustive exploration. Storms were random
histories on a manual clock, which the simulator has replaced (their last commit is d03404b); their processor time was
not measured.

{_table(found)}

## Bugs that simulation did not find

{_missed(missed)}

## Mutants

{_mutants(mutants.load(folder / "mutants.toml").values(), mutant_search.load(folder / "found.toml"))}
"""


def _searches(searches: Sequence[Search]) -> str:
    if not searches:
        return "No search has been published yet."
    facts = ("release", "commit", "world", "cluster-hours", "CPU-hours")
    header = (*facts, "runs", "with participants", "faults", "elections", "violations", "probes")
    return _markdown(
        header,
        [
            (
                search.release,
                search.commit,
                search.world,
                f"{search.cluster_hours:,.1f}",
                _NONE if search.cpu_s is None else f"{search.cpu_s / 3600:,.1f}",
                f"{search.runs:,}",
                f"{search.participants:,}" if search.participants else _NONE,
                f"{search.faults:,}",
                f"{search.failovers:,}",
                search.violations or _NONE,
                ", ".join(f"{number} {hits:,}" for number, hits in sorted(search.probes.items())) or _NONE,
            )
            for search in searches
        ],
    )


def _table(shown: Sequence[Bug]) -> str:
    header = (
        "no.",
        "invariant",
        "what broke",
        "found by",
        "seed or script",
        "CPU-s",
        "found at",
        "fixed by",
        "versions",
    )
    rows = [
        (
            f"{number}",
            bug.invariant,
            bug.broke,
            bug.found_by,
            bug.how,
            _NONE if bug.cpu_s is None else f"{bug.cpu_s:,.0f}",
            bug.found or _NONE,
            bug.fixed or "open",
            bug.versions or "none released",
        )
        for number, bug in enumerate(shown, start=1)
    ]
    return _markdown(header, rows)


def _missed(shown: Sequence[Bug]) -> str:
    if not shown:
        return "None is known."
    header = ("invariant", "what broke", "found by", "how", "fixed by", "why not found", "action")
    return _markdown(
        header,
        [
            (bug.invariant, bug.broke, bug.found_by, bug.how, bug.fixed or "open", bug.why_not_found, bug.action)
            for bug in shown
        ],
    )


def _mutants(known: Iterable[mutants.Mutant], found: Mapping[tuple[str, str], Found]) -> str:
    every = list(known)
    without = [mutant for mutant in every if mutant.not_applicable]
    reasons: dict[str, list[str]] = {}
    for mutant in without:
        reasons.setdefault(mutant.not_applicable, []).append(mutant.number)
    lines = [
        f"`tests/sim/mutants.toml` has {len(every)} mutants. {len(every) - len(without)} apply to the code as it is; "
        "the others count as not applicable, and never as found:",
        "",
        *(f"* {', '.join(numbers)}: {reason}." for reason, numbers in reasons.items()),
        "",
        *_searched([mutant for mutant in every if not mutant.not_applicable], found),
    ]
    return "\n".join(lines)


def _searched(known: Sequence[mutants.Mutant], found: Mapping[tuple[str, str], Found]) -> list[str]:
    """Returns the table of the searches for mutants, one row for each store."""
    rows = []
    for mutant in known:
        for store in mutant_search.stores(mutant):
            one = found.get((mutant.number, store))
            result = (
                _result(one) if one is not None else (mutant_search.why_not(mutant) or "not searched yet", *[_NONE] * 8)
            )
            rows.append((mutant.number, mutant.safeguard, store, f"{mutant.budget_cpu_s:.0f}", *result))
    header = (
        "mutant", "safeguard that is taken out", "store", "budget, CPU-s", "found as", "seed", "CPU-s", "runs", "steps",
        "actions", "reduced to", "unchanged code", "commit",
    )  # fmt: skip
    return [
        "`python -m tests.sim.mutant_search` searches for each of them with random seeds and no hint, one seed after",
        "the other. CPU-s is the time of one core until the end of the first run that broke one of the invariants of",
        "the mutant, and only with the mutant. It contains all earlier runs, also those that broke another invariant,",
        "and not the starts of processes, the runs with the unchanged code and the reduction. One search is one draw:",
        "another first seed may take many times as long. `unchanged code` is the end of the same script with the",
        f"unchanged code. `commit` is the commit of main that was searched, or, {_EARLIER}",
        "A later search for MUT-30, at other seeds, was ended after 104 CPU-s and had not found it.",
        "Searches from seed 51000000 on shared their runs (`tests.sim.reach`): the unchanged code ran each seed once,",
        "and a mutant only those that reached its safeguard, as all other runs are the same with it. CPU-s and runs",
        "count all of them, as if each search had made them alone. Behind `not found` stands how many reached it.",
        "",
        _markdown(header, rows),
    ]


_EARLIER: Final = "where that one is no longer part of the history, the first one that contains its code."


def _result(one: Found) -> tuple[str, ...]:
    if not one.signature:
        reached = "" if one.reached < 0 else f", reached {one.reached} times"
        return (f"not found{reached}", f"{one.seed}…", f"{one.cpu_s:,.0f}", f"{one.runs:,}", *[_NONE] * 4, one.commit)
    return (
        one.signature.split(" ")[0], f"{one.seed}", f"{one.cpu_s:,.1f}", f"{one.runs:,}", f"{one.steps:,}",
        f"{one.actions[0]}", f"{one.actions[1]}", one.control, one.commit,
    )  # fmt: skip


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"| {' | '.join('---' for _ in header)} |"]
    return "\n".join([*lines, *(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
