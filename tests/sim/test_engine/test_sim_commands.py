"""The command `python -m tests.sim`: output, exit codes, and remedies for bad input."""

import itertools
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kactl.testing.history import Event
from kactl.testing.violations import Violation
from tests.sim.engine import judging, script
from tests.sim.engine.cli import sim as sim_command
from tests.sim.engine.cli import worktree
from tests.sim.engine.generator import script_of_seed
from tests.sim.engine.judging import Judged
from tests.sim.engine.script import Action, Script
from tests.support import tree

from .test_exploring import a_script, judged

BROKEN = "INV-19 role.apply"


def sim(*words: object) -> Result:
    return CliRunner().invoke(sim_command, [*map(str, words)])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "INV-19-1.json"
    path.write_text(script.dumps(a_script(1)))
    return path


@pytest.fixture
def judge_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Script], Judged]], None]:
    """Replaces the run of scripts."""

    def use(run: Callable[[Script], Judged]) -> None:
        monkeypatch.setattr(judging, "judge", lambda script, **_: run(script))

    return use


def fails(found: Script) -> Judged:
    """A run that breaks an invariant if action 13 is there."""
    if not any(action.args.get("number") == 13 for action in found.actions):
        return judged(found)
    result = judged(found, BROKEN)
    event = Event(1, 2_000.0, "broker 3", "role.apply", {"topic": "t1", "partition": 0})
    result.outcome.violation = Violation("INV-19", "two leaders of t1-0", event=event)
    result.history.record("role.apply", node="broker 3", topic="t1", partition=0)
    return result


def test_replay_of_a_script_that_passes(saved: Path) -> None:
    saved.write_text(script.dumps(Script(name="quiet", duration_ms=2_000.0)))

    done = sim("replay", saved)

    assert done.exit_code == 0, done.output
    assert re.match(r"quiet passes: 0 actions, 0 skipped, [\d,]+ steps, ", done.output)


def test_replay_reports_the_violation(saved: Path, judge_with: Any) -> None:
    judge_with(fails)

    done = sim("replay", saved)

    assert done.exit_code == 1
    assert done.output.splitlines()[:2] == [BROKEN, "  two leaders of t1-0"]
    assert done.output.splitlines()[-1] == f"  replay: python -m tests.sim replay {saved}"


def test_replay_with_trace_prints_the_events_concerned(saved: Path, judge_with: Any) -> None:
    judge_with(fails)

    done = sim("replay", saved, "--trace")

    assert "broker 3" in done.output.splitlines()[0]
    assert "INV-19: two leaders" in done.output


def test_runs_that_differ_are_rejected_with_the_difference(saved: Path, judge_with: Any) -> None:
    noise = itertools.count()
    judge_with(lambda found: judged(found, noise=next(noise)))

    done = sim("replay", saved)

    assert done.exit_code == 4
    assert "two runs of seed-1 differ" in done.output
    assert "second       0.000 s  n                fault.begin  fault kill, noise 1" in done.output


def test_script_that_no_longer_fails_states_what_to_do(saved: Path, judge_with: Any) -> None:
    judge_with(judged)
    saved.write_text(script.dumps(Script(name="INV-19-1", expect=BROKEN)))

    done = sim("replay", saved)

    assert done.exit_code == 0
    assert (
        "INV-19-1 ended with INV-19 role.apply when it was saved, and now with pass. If the bug is fixed" in done.output
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"format": 99}', "script format 99, but this version reads format 1: replay it with the version"),
        ("{", "not a script"),
        ('{"format": 1, "sentence": "x"}', "the name '' is not that of the file"),
    ],
)
@pytest.mark.parametrize("command", ["replay", "shrink", "timeline"])
def test_damaged_file_is_a_usage_error(saved: Path, command: str, text: str, reason: str) -> None:
    saved.write_text(text)

    done = sim(command, saved)

    assert done.exit_code == 2
    assert f"error: {saved}: {reason}" in done.output


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["replay", "nowhere.json"], "nowhere.json: No such file or directory"),
        (["run", "--seeds", "7:3"], "the last seed is less than the first"),
        (["run", "--seeds", "x"], "'x' are not seeds: write 0:99"),
        (["run", "--seeds", "1:2", "--minutes", "1"], "--seeds and --minutes exclude each other"),
        (["run", "--mutant", "MUT-99", "--mutants", tree.ROOT / "tests/sim/mutants.toml"], "there is no mutant MUT-99"),
        (["run", "--mutant", "MUT-07", "--mutants", tree.ROOT / "tests/sim/mutants.toml"], "MUT-07 is not applicable"),
        (["run", "--mutant", "MUT-04", "--mutants", "nowhere.toml"], "nowhere.toml"),
        (["replay", "3", "--commit", "no-such-commit"], "commit no-such-commit cannot be checked out"),
        (["report", "--tests", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_a_usage_error(words: list[object], reason: str) -> None:
    done = sim(*words)

    assert done.exit_code == 2, done.output
    assert reason in done.output


def test_shrink_writes_the_reduced_script(saved: Path, judge_with: Any) -> None:
    judge_with(fails)
    target = saved.with_name("short.json")

    done = sim("shrink", saved, "--output", target)

    assert done.exit_code == 0, done.output
    assert script.load(target).actions == [Action("tick", at_ms=0.0, args={"number": 13})]
    assert (script.load(target).name, script.load(target).expect) == ("short", BROKEN)
    assert "shrunk 20 -> 1 actions" in done.output
    assert len(script.load(saved).actions) == 20


def test_shrink_of_a_script_that_passes_fails(saved: Path, judge_with: Any) -> None:
    judge_with(judged)

    done = sim("shrink", saved)

    assert done.exit_code == 1
    assert "passes: there is nothing to reduce" in done.output


def test_timeline_is_text_or_a_page(saved: Path, judge_with: Any, tmp_path: Path) -> None:
    judge_with(fails)
    page = tmp_path / "page.html"

    text = sim("timeline", saved, "--all", "--width", "100")
    html = sim("timeline", saved, "--html", page)

    assert text.exit_code == html.exit_code == 0
    assert "fault kill" in text.output
    assert "INV-19: two leaders of t1-0" in text.output
    assert "INV-19: two leaders of t1-0" in page.read_text()


@pytest.mark.slow
def test_search_runs_in_processes_and_sums_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    # Seeds with short runs.
    done = sim("run", "--seeds", "6:7", "--jobs", "2", "--no-shrink", "-o", "jsonl")

    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code in (0, 1), done.output
    assert sorted(result["seed"] for result in found) == [6, 7]
    sums = json.loads((tmp_path / ".sim" / "totals.json").read_text())
    assert (sums["runs"], sums["minima"]["PRB-01"]) == (2, 300)
    shown = sim("report", "--tests", tree.ROOT / "tests/sim")
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("2 runs, ")
    assert re.search(r"^PRB-01 +\d+ +\d+$", shown.output, re.MULTILINE)
    assert "MUT-04" in shown.output


@pytest.mark.slow
def test_dense_search_has_no_long_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # The first seed that is a long run by itself, and one of the shortest storms otherwise.
    storms = ((seed, script_of_seed(seed, calm=False).duration_ms) for seed in itertools.count())
    seed, duration_ms = next(
        (seed, dense_ms) for seed, dense_ms in storms if dense_ms < min(30_000, script_of_seed(seed).duration_ms)
    )

    done = sim("run", "--seeds", seed, "--dense", "--no-shrink", "-o", "jsonl")

    (found,) = map(json.loads, done.stdout.splitlines())
    assert (found["seed"], found["cluster_ms"]) == (seed, duration_ms)


@pytest.mark.slow
def test_mutant_is_on_in_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit that breaks the module at its import ends the process: the edit was applied."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mutants.toml").write_text(
        "budgets_cpu_s = {old = 1}\n[[mutant]]\nnumber = 'X'\nclass = 'old'\nsafeguard = 's'\nmust_break = ['INV-01']\n"
        "worlds = ['memory']\n[[mutant.edit]]\nfile = 'kactl/decide/machines/election.py'\nold = 'import enum'\n"
        "new = 'raise SystemExit(\"mutated\")'\n"
    )

    done = sim("run", "--seeds", "0:0", "--mutant", "X", "--mutants", tmp_path / "mutants.toml")

    assert done.exit_code == 1
    assert "mutated" in done.output


@pytest.mark.parametrize(
    ("file", "command"),
    [
        (Path("tests", "sim", "__main__.py"), ["tests.sim"]),
        (Path("kactl", "testing", "cli", "__init__.py"), ["kactl.cli", "sim"]),
    ],
)
def test_other_commit_is_run_from_a_temporary_tree(
    file: Path, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q", "."], check=True)
    program = tmp_path / file
    program.parent.mkdir(parents=True)
    program.write_text("OLD = 1\n")
    who = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    subprocess.run(["git", "add", "."], check=True)
    subprocess.run(["git", *who, "commit", "-q", "-m", "old"], check=True)
    program.write_text("NEW = 1\n")

    with worktree.at("HEAD") as folder:
        text = (folder / file).read_text()
        path = worktree.environment(folder)["PYTHONPATH"]
        found = worktree.command(folder)

    assert (text, path, found) == ("OLD = 1\n", str(folder), command)
    assert not folder.exists()
    listed = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True, check=True).stdout
    assert len(listed.splitlines()) == 1


def test_nothing_else_of_the_product_names_the_package() -> None:
    named = [
        str(file.relative_to(tree.ROOT))
        for name, file in tree.modules().items()
        if not name.startswith("kactl.testing") and "kactl.testing" in file.read_text(encoding="utf-8")
    ]

    assert not named
