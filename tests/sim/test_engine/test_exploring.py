"""Search with seeds: reports, saved scripts and counts, and processes that search at the same time."""

import sys
from pathlib import Path
from typing import Any

import pytest

from kactl.testing.history import History
from tests.sim.engine import script, totals
from tests.sim.engine.exploring import NOT_DETERMINISTIC, Options, SeedRun, cluster_ms, explore
from tests.sim.engine.jobs import JobFailed, command, results
from tests.sim.engine.judging import Judged
from tests.sim.engine.run import Outcome
from tests.sim.engine.script import PASS, Action, BrokersSpec, Script, WorldSpec


def a_script(seed: int, store: str = "") -> Script:
    actions = [Action("tick", at_ms=1_000.0 * number, args={"number": number}) for number in range(20)]
    found = Script(name=f"seed-{seed}", actions=actions, duration_ms=30_000.0)
    found.schedule.seed = seed
    return found


def judged(found: Script, signature: str = PASS, *, noise: object = 0) -> Judged:
    history = History(lambda: 0.0)
    history.record("fault.begin", node="n", fault="kill", noise=noise)
    history.record("ctl.elected", node="n")
    outcome = Outcome(
        script=found,
        signature=signature,
        digest=history.digest(),
        steps=7,
        virtual_ms=3_600_000.0,
        cpu_s=2.0,
        probes={"PRB-01": 3},
        history=history,
    )
    return Judged(outcome, [])


def run(found: Script) -> Judged:
    """Seeds that are odd fail if action 13 is there."""
    numbers = [action.args.get("number") for action in found.actions]
    fails = found.schedule.seed % 2 and 13 in numbers
    return judged(found, "INV-19 role.apply" if fails else PASS)


def search(tmp_path: Path, **fields: Any) -> list[SeedRun]:
    options = Options(**{"first": 0, "last": 3, "folder": str(tmp_path / ".sim"), "commit": "abc", **fields})
    return list(explore(options, run=run, generate=a_script))


def test_each_seed_has_a_result(tmp_path: Path) -> None:
    found = search(tmp_path)

    assert [(result.seed, result.passed) for result in found] == [(0, True), (1, False), (2, True), (3, False)]
    assert (found[0].faults, found[0].failovers, found[0].probes) == (1, 1, {"PRB-01": 3})
    assert not found[0].report


def test_failing_script_is_reduced_saved_and_reported(tmp_path: Path) -> None:
    result = search(tmp_path, first=1, last=1)[0]

    saved = script.load(Path(result.file))
    assert Path(result.file).name == "INV-19-1.json"
    assert [action.args["number"] for action in saved.actions] == [13]
    assert (saved.name, saved.expect) == ("INV-19-1", "INV-19 role.apply")
    assert result.report[0] == "INV-19 role.apply"
    assert "  seed 1  commit abc  format 1" in result.report[1]
    assert "shrunk 20 -> 1 actions" in "\n".join(result.report)
    assert result.report[-1] == f"  replay: python -m tests.sim replay {result.file}"


def test_failing_script_is_saved_whole_without_reduction(tmp_path: Path) -> None:
    result = search(tmp_path, first=1, last=1, shrink_cpu_s=0.0)[0]

    assert len(script.load(Path(result.file)).actions) == 20
    assert result.actions == 20


def test_search_ends_at_the_first_violation_if_asked(tmp_path: Path) -> None:
    assert [result.seed for result in search(tmp_path, stop=True)] == [0, 1]


def test_processes_divide_the_seeds(tmp_path: Path) -> None:
    assert [result.seed for result in search(tmp_path, first=1, last=9, step=4)] == [1, 5, 9]


def test_search_ends_after_its_time(tmp_path: Path) -> None:
    options = Options(first=0, budget_s=0.05, folder=str(tmp_path))

    found = list(explore(options, run=lambda found: judged(found), generate=a_script))

    assert [result.seed for result in found] == list(range(len(found)))
    assert found


def test_failure_that_is_not_the_same_twice_is_reported_as_such(tmp_path: Path) -> None:
    noise = iter(range(100))
    options = Options(first=5, last=5, folder=str(tmp_path))

    (result,) = explore(options, run=lambda found: judged(found, "INV-19", noise=next(noise)), generate=a_script)

    assert result.signature == NOT_DETERMINISTIC
    assert "two runs of seed-5 differ" in "\n".join(result.report)
    assert "noise 1" in "\n".join(result.report)
    assert (tmp_path / "non-determinism-5.json").exists()


def test_sums_count_what_happened(tmp_path: Path) -> None:
    sums = totals.Totals(minima={"PRB-01": 400, "PRB-02": 1})
    for result in search(tmp_path, last=9):
        sums.add(result)

    assert (sums.runs, sums.faults, sums.violations, sums.probes) == (10, 10, 5, {"PRB-01": 30})
    assert (round(sums.hours * 3_600), sums.virtual_hours) == (300, 10.0)
    assert sums.signatures == {"INV-19 role.apply": 5}
    assert sums.lines()[0] == "10 runs, 0.08 cluster-hours (of 10.00 hours) in 20 CPU-s (15 s per CPU-s), 70 steps"
    assert sums.lines()[1] == (
        "10 faults, 10 controller elections, 0 elections of leaders, 30 commits refused by the fence"
    )  # fmt: skip
    sums.save(tmp_path)
    assert totals.load(tmp_path) == sums


@pytest.mark.parametrize(
    ("brokers", "controllers", "virtual_ms", "faults", "counted_ms"),
    [(3, 2, 90_000.0, 2, 60_000.0), (3, 2, 40_000.0, 2, 40_000.0), (3, 2, 90_000.0, 1, 0.0), (2, 2, 90_000.0, 9, 0.0),
     (3, 1, 90_000.0, 9, 0.0)],
)  # fmt: skip
def test_cluster_time_is_the_first_phase_of_a_cluster_with_faults(
    brokers: int, controllers: int, virtual_ms: float, faults: int, counted_ms: float
) -> None:
    world = WorldSpec(brokers=BrokersSpec(count=brokers), controllers=controllers)
    found = Script(world=world, duration_ms=60_000.0)

    assert cluster_ms(found, virtual_ms=virtual_ms, faults=faults) == counted_ms


def test_elections_of_leaders_are_counted_from_the_transitions() -> None:
    hits = {
        "partition new>online": 3,
        "partition online>online": 2,
        "partition online>offline": 7,
        "replica new>online": 9,
    }

    assert totals.Totals(probes=hits).elections == 5


def test_probe_below_its_minimum_is_named_after_enough_hours(tmp_path: Path) -> None:
    sums = totals.Totals(hours=99.0, minima={"PRB-01": 400, "PRB-02": 1}, probes={"PRB-01": 500})
    assert sums.missed_probes() == []

    sums.hours = 200.0

    assert [line.split(",")[0] for line in sums.missed_probes()] == [
        "PRB-01 was reached 500 times in 200 cluster-hours",
        "PRB-02 was reached 0 times in 200 cluster-hours",
    ]


def test_damaged_sums_are_refused(tmp_path: Path) -> None:
    assert totals.load(tmp_path) is None
    (tmp_path / totals.FILE).write_text("{")
    with pytest.raises(ValueError, match=r"totals\.json: not the sums of a search: .*: remove it"):
        totals.load(tmp_path)


def test_results_of_several_processes_are_merged() -> None:
    programs = [f"print('{{\"seed\": {number}}}')" for number in range(3)]

    found = list(results([[sys.executable, "-c", program] for program in programs]))

    assert sorted(result["seed"] for result in found) == [0, 1, 2]


def test_process_that_fails_is_reported_with_its_last_words() -> None:
    program = "import sys; print('{\"seed\": 1}', flush=True); sys.exit('no more')"

    with pytest.raises(JobFailed, match="ended with code 1: no more"):
        list(results([[sys.executable, "-c", program]]))


def test_processes_end_with_the_iteration() -> None:
    program = "import time\nprint('{\"seed\": 1}', flush=True)\ntime.sleep(600)"
    running = results([[sys.executable, "-c", program]])

    assert next(running) == {"seed": 1}
    running.close()  # returns once the process has ended


def test_mutant_is_applied_before_anything_is_imported() -> None:
    assert command(["{}"]) == [sys.executable, "-m", "tests.sim.engine.exploring", "{}"]

    mutated = command(["{}"], mutant="MUT-04", mutants_file=Path("m.toml"))

    assert mutated[1] == "-c"
    assert mutated[4:] == ["m.toml", "MUT-04", "tests.sim.engine.exploring", "{}"]
