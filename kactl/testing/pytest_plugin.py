"""Plug-in of pytest for simulated tests.

    @pytest.mark.sim(seeds=200, duration="10min", faults=["pause", "partition", "kill"])
    async def test_no_job_runs_twice(sim):
        cluster = await sim.cluster(controllers=2, nodes=3, application=JobRunner)
        ...

Each seed is one test item, so pytest-xdist divides the seeds. A failing run prints its faults, reduced to few, and the
command that repeats it. Nothing here is imported before a test with the marker is collected, except pytest.
"""

import argparse
import contextlib
import inspect
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .programs.simulation import Plan, Simulation
    from .script import Action, Script

SEEDS_DEFAULT: Final = 20
# Processor time for the reduction of one failing run.
SHRINK_CPU_S: Final = 30.0
# Events of the history that a failure shows.
EVENTS_SHOWN: Final = 30
# Saved scripts, under the root folder of the tests; those in the second folder run each time.
FOLDER: Final = ".sim"
CORPUS: Final = "corpus"

_ARGUMENTS: Final = ("seeds", "duration", "faults")
_USED: Final = pytest.StashKey[float]()
_REPORT: Final = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kactl simulation")
    group.addoption("--sim-seeds", type=_number_from(1), metavar="N", help="run seeds 0 to N-1 of each simulated test")
    group.addoption("--sim-seed", type=_number_from(0), metavar="S", help="run only this seed of each simulated test")
    group.addoption("--sim-budget", metavar="60s", help="skip further seeds after this processor time, in each process")
    group.addoption("--sim-replay", metavar="FILE", help="repeat the run of a saved script")
    group.addoption("--sim-no-shrink", action="store_true", help="do not reduce the faults of a failing run")
    group.addoption("--sim-trace", metavar="FILE", help="append the history of each run to a file")


def _number_from(least: int) -> "Callable[[str], int]":
    """Returns the type of an option: a whole number that is at least `least`."""

    def convert(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return convert


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "sim(seeds=20, duration='60s', faults=[]): runs the asynchronous test in virtual time, once for each seed; "
        "faults begin during that time, see kactl.testing.programs.FAULTS",
    )
    config.stash[_USED] = 0.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("sim")
    if marker is None:
        return
    if fault := _fault_of(marker, metafunc.function):
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: pytest.mark.sim: {fault}")
    runs = dict(_runs(metafunc.config, marker, metafunc.definition.nodeid))
    metafunc.parametrize("sim", list(runs.values()), indirect=True, ids=list(runs))


def _fault_of(marker: pytest.Mark, function: object) -> str:
    """Returns why a test cannot be run; empty if it can. Faults and the duration are checked when it is run."""
    unknown = sorted(marker.kwargs.keys() - _ARGUMENTS)
    seeds = marker.kwargs.get("seeds", SEEDS_DEFAULT)
    if marker.args or unknown:
        given = ", ".join(unknown) or ", ".join(map(repr, marker.args))
        return f"{given} is not an argument: write {', '.join(f'{name}=' for name in _ARGUMENTS)}"
    if type(seeds) is not int or seeds < 1:
        return f"seeds: {seeds!r} is not a whole number of at least 1"
    return "" if inspect.iscoroutinefunction(function) else "the test is not asynchronous: write async def"


def _runs(config: pytest.Config, marker: pytest.Mark, nodeid: str) -> "Iterator[tuple[str, int | Script]]":
    """Yields the runs of one test by name: seeds, or scripts that were saved."""
    if config.getoption("--sim-replay") is not None:
        script = _loaded(Path(config.getoption("--sim-replay")))
        if script.name in ("", nodeid):
            yield f"seed-{script.schedule.seed}", script
        return
    if config.getoption("--sim-seed") is not None:
        yield f"seed-{config.getoption('--sim-seed')}", config.getoption("--sim-seed")
        return
    count = config.getoption("--sim-seeds")
    for seed in range(marker.kwargs.get("seeds", SEEDS_DEFAULT) if count is None else count):
        yield f"seed-{seed}", seed
    for file in sorted((config.rootpath / FOLDER / CORPUS).glob("*.json")):
        script = _loaded(file)
        if script.name == nodeid:
            yield file.stem, script


def _loaded(file: Path) -> "Script":
    from .script import ScriptError, load

    try:
        return load(file)
    except (OSError, ScriptError) as error:
        raise pytest.UsageError(f"script of a simulated run: {error}") from error


@pytest.fixture
def sim(request: pytest.FixtureRequest) -> "Simulation":
    """The simulated run of this test; see `kactl.testing.programs.Simulation`."""
    if not hasattr(request, "param"):
        raise pytest.UsageError(f"{request.node.nodeid} uses the fixture sim: mark it with pytest.mark.sim")
    from .programs.simulation import Simulation

    if isinstance(request.param, int):
        return Simulation(request.param, _plan(request.node))
    return Simulation(request.param.schedule.seed, _plan(request.node), script=request.param)


def _plan(item: pytest.Item) -> "Plan":
    from .programs.simulation import plan_of

    marker = item.get_closest_marker("sim")
    assert marker is not None
    options = {name: value for name, value in marker.kwargs.items() if name != "seeds"}
    try:
        return plan_of(**options)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"{item.nodeid}: pytest.mark.sim: {error}") from error


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if pyfuncitem.get_closest_marker("sim") is None or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    config, started_s = pyfuncitem.config, time.process_time()
    budget_s = _budget_s(config)
    if budget_s is not None and config.stash[_USED] >= budget_s:
        pytest.skip(f"the budget of {budget_s:g} s of processor time (--sim-budget) is used up")
    simulation: Any = pyfuncitem.funcargs["sim"]
    try:
        _run(pyfuncitem, simulation)
    except Exception as error:
        pyfuncitem.stash[_REPORT] = _Failure(pyfuncitem, simulation, error).report()
        raise
    finally:
        config.stash[_USED] += time.process_time() - started_s
    return True


def _budget_s(config: pytest.Config) -> float | None:
    text = config.getoption("--sim-budget")
    if text is None:
        return None
    from .programs.simulation import plan_of

    try:
        return plan_of(duration=text if not text.replace(".", "").isdigit() else float(text)).duration_ms / 1000
    except ValueError as error:
        raise pytest.UsageError(f"--sim-budget: {error}") from error


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> "Iterator[None]":
    outcome: Any = yield
    if _REPORT in item.stash:
        outcome.get_result().sections.append(("simulation", item.stash[_REPORT]))
        del item.stash[_REPORT]


def _run(item: pytest.Function, simulation: "Simulation") -> None:
    """Run the test function once."""
    from . import sim as runs
    from .schedule import Schedule

    names = item._fixtureinfo.argnames
    arguments = {name: simulation if name == "sim" else item.funcargs[name] for name in names}

    async def main() -> None:
        simulation.begin()
        try:
            await item.obj(**arguments)
        finally:
            simulation.end()

    # The guards of the simulation apply to the modules of kactl and to that of `main`.
    main.__module__ = item.obj.__module__
    spec = simulation.schedule
    try:
        runs.run(main, seed=spec.seed, schedule=Schedule(spec.strategy, spec.hold_back, spec.changes, spec.grid_ms))
    finally:
        trace = item.config.getoption("--sim-trace")
        if trace is not None:
            with Path(trace).open("a", encoding="utf-8") as file:
                lines = [f"# {item.nodeid}", *map(str, simulation.history.events)]
                file.write("\n".join(lines) + "\n")


class _Ended(NamedTuple):
    """Outcome of one run, for the shrinker."""

    signature: str
    virtual_ms: float


class _Failure:
    """A failing run: its script, reduced and saved, and the report."""

    def __init__(self, item: pytest.Function, simulation: "Simulation", error: Exception) -> None:
        self._item = item
        self._simulation = simulation
        self._signature = _signature(item, error)
        self._trace = item.config.getoption("--sim-trace")

    def report(self) -> str:
        simulation = self._simulation
        lines = [f"seed {simulation.seed}, {simulation.now_ms / 1000:.3f} s of virtual time: {self._signature}"]
        events = simulation.history.events[: simulation.event_count]
        if simulation.script is None:
            lines.append("the cluster had not started: no faults")
        else:
            script, note = self._shrunk(simulation.script)
            lines += [note, *(f"  {_text(action)}" for action in script.actions)]
            file = self._save(script)
            lines.append(f"repeat it: pytest '{self._nodeid()}' --sim-replay {file}")
        lines += ["", f"last {min(len(events), EVENTS_SHOWN)} of {len(events)} events of the original run:"]
        return "\n".join([*lines, *map(str, events[-EVENTS_SHOWN:])])

    def _shrunk(self, script: "Script") -> "tuple[Script, str]":
        """Returns the reduced script, and a line with the number of actions and runs."""
        from .shrinking import Limits, NotReproduced, shrink

        count = len(script.actions)
        if self._item.config.getoption("--sim-no-shrink"):
            return script, f"{count} faults:"
        self._show(
            f"\nseed {self._simulation.seed} fails: finding out which of its {count} faults are needed, in at most "
            f"{SHRINK_CPU_S:g} s of processor time (--sim-no-shrink leaves it out)"
        )
        began_s = time.process_time()

        def progress(kept: "Script", runs: int) -> None:
            spent_s = time.process_time() - began_s
            self._show(f"  {len(kept.actions)} of {count} faults left after {runs} runs, {spent_s:.0f} s")

        try:
            shrunk, runs = shrink(
                script,
                self._again,
                signature=self._signature,
                limits=Limits(SHRINK_CPU_S, 300),
                on_progress=progress,
            )
        except NotReproduced as error:
            return script, f"{count} faults; a second run ended otherwise ({error.seen}): the test is not deterministic"
        return shrunk, f"{len(shrunk.actions)} of {count} faults are needed ({runs} runs):"

    def _show(self, line: str) -> None:
        """Write a line to the terminal at once, past the capture of the test's output."""
        plugins = self._item.config.pluginmanager
        terminal, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")
        if terminal is not None:  # absent in processes of pytest-xdist
            with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
                terminal.write_line(line)
                terminal.flush()

    def _again(self, script: "Script") -> _Ended:
        from .programs.simulation import Simulation

        simulation = Simulation(script.schedule.seed, self._simulation.plan, script=script)
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # the records of the original run are the ones to show
        try:
            _run(self._item, simulation)
        except Exception as error:
            return _Ended(_signature(self._item, error), simulation.now_ms)
        finally:
            logging.disable(disabled)
        return _Ended("pass", simulation.now_ms)

    def _nodeid(self) -> str:
        """Returns the id of the test without its parameters."""
        return self._item.nodeid.partition("[")[0]

    def _save(self, script: "Script") -> Path:
        """Write the script. Returns its file, relative to the root of the tests."""
        import msgspec

        from .script import dumps

        folder = self._item.config.rootpath / FOLDER
        folder.mkdir(exist_ok=True)
        file = folder / f"{self._item.originalname}-{self._simulation.seed}.json"
        named = msgspec.structs.replace(script, name=self._nodeid())
        file.write_text(dumps(named), encoding="utf-8")
        return file.relative_to(self._item.config.rootpath)


def _signature(item: pytest.Function, error: Exception) -> str:
    """Returns the key by which failures of a test are equal: the error's class, and its place in the test."""
    from .failures import SimFailure

    if isinstance(error, SimFailure):
        return error.signature
    place, trace = "", error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == item.path:
            place = f" at {item.path.name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}{place}"


def _text(action: "Action") -> str:
    args = ", ".join(f"{name} {value}" for name, value in action.args.items() if name != "node")
    return f"{action.at_ms / 1000:9.3f} s  {action.do} {action.args.get('node', '')}  {args}"
