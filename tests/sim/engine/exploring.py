"""Search for violations with random seeds: run, repeat, shrink, save, and count.

    python -m tests.sim.engine.exploring OPTIONS_AS_JSON

runs some seeds and prints one JSON object per line: a `SeedRun` for each seed. `tests.sim run` starts one such process
for each job, so that a mutant can be applied before anything is imported.
"""

import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from kactl.testing.shrinking import Limits
from tests.sim.engine.script import PASS, Script, dumps
from tests.sim.engine.shrinking import shrink

from . import wording
from .generator import script_of_seed
from .judging import Judged, judge, judge_first_phase
from .replaying import NotReplayable, replay
from .reports import Origin, report

Run = Callable[[Script], Judged]

# Signature of a run that is not the same twice.
NOT_DETERMINISTIC: Final = "non-determinism"
# What a cluster-hour is an hour of; the last is the mean time between two faults.
BROKERS_MIN: Final = 3
CONTROLLERS_MIN: Final = 2
FAULT_MS_MAX: Final = 30_000.0
_FAILOVER: Final = "ctl.elected"
_FAULT: Final = "fault.begin"


class Options(msgspec.Struct, kw_only=True, frozen=True):
    """Work of one process.

    Attributes:
        first, last: seeds, both included; None for no last one.
        step: distance of two seeds; the number of processes.
        seeds: in place of those.
        store: kind of the store, in place of the one that the seed draws; empty for that one. A kind of brokers may
            follow, as in `memory/participant`.
        calm: whether runs may be long and calm ones.
        budget_s: real time after which no further seed begins; 0 for none.
        stop: whether to end after the first violation.
        shrink_cpu_s: processor time for the reduction of each failing script; 0 for none.
        folder: where failing scripts are saved.
        commit: of the code, for reports.
    """

    first: int
    last: int | None = None
    step: int = 1
    seeds: list[int] | None = None
    store: str = ""
    calm: bool = True
    budget_s: float = 0.0
    stop: bool = False
    shrink_cpu_s: float = 300.0
    folder: str = ".sim"
    commit: str = ""
    replay_options: str = ""


class SeedRun(msgspec.Struct, kw_only=True, frozen=True):
    """Result of one seed.

    Attributes:
        virtual_ms: length of the run.
        cluster_ms: the part of it that counts as time of a cluster under load and faults; see `cluster_ms`.
        found_cpu_s: processor time of this process from its start to the end of the seed's first run.
        report: lines of the report; empty if the run passed.
        file: of the saved script.
    """

    seed: int
    world: str
    signature: str
    digest: str
    virtual_ms: float
    cluster_ms: float
    cpu_s: float
    steps: int
    faults: int
    failovers: int
    probes: dict[str, int]
    found_cpu_s: float = 0.0
    actions: int = 0
    report: list[str] = []
    file: str = ""

    @property
    def passed(self) -> bool:
        return self.signature == PASS


def explore(
    options: Options, *, run: Run = judge, generate: Callable[[int, str], Script] | None = None
) -> Iterator[SeedRun]:
    """Yields the results of the seeds, in order.

    Args:
        run: executes and judges a script.
        generate: returns the script of a seed over a kind of store; by default `script_of`.
    """
    generate = generate or (lambda seed, store: script_of(seed, store, calm=options.calm))
    began_s = time.monotonic()
    began_cpu_s = time.process_time()
    for seed in _seeds(options) if options.seeds is None else options.seeds:
        if options.budget_s and time.monotonic() - began_s >= options.budget_s:
            return
        result = _explore(seed, generate(seed, options.store), options, run, began_cpu_s)
        yield result
        if options.stop and not result.passed:
            return


def _seeds(options: Options) -> Iterable[int]:
    if options.last is None:
        return itertools.count(options.first, options.step)
    return range(options.first, options.last + 1, options.step)


def script_of(seed: int, store: str = "", *, calm: bool = True) -> Script:
    """Returns the script of a seed, over another kind of store, and of brokers, if one is named; see `Options`."""
    store, _, brokers = store.partition("/")
    return script_of_seed(seed, store or None, brokers=brokers, calm=calm)  # type: ignore[arg-type]


def _explore(seed: int, script: Script, options: Options, run: Run, began_cpu_s: float) -> SeedRun:
    judged = run(script)
    faults = _count(judged, _FAULT)
    result = SeedRun(
        seed=seed,
        world=wording.world(script),
        signature=judged.signature,
        digest=judged.digest,
        virtual_ms=judged.virtual_ms,
        cluster_ms=cluster_ms(script, virtual_ms=judged.virtual_ms, faults=faults),
        cpu_s=judged.cpu_s,
        steps=judged.steps,
        faults=faults,
        failovers=_count(judged, _FAILOVER),
        probes=judged.outcome.probes,
        found_cpu_s=time.process_time() - began_cpu_s,
    )
    return result if judged.passed else _reported(result, script, judged, options, run)


def cluster_ms(script: Script, *, virtual_ms: float, faults: int) -> float:
    """Returns the virtual time of a run that counts towards cluster-hours: its first phase, in which requests and
    faults happen; 0 for a run with fewer than three brokers or two controllers, or with rarer faults.

    Args:
        virtual_ms: length of the run; one that failed may have ended in its first phase.
        faults: number of faults that have begun.
    """
    world, first_ms = script.world, min(script.duration_ms, virtual_ms)
    counts = world.brokers.count >= BROKERS_MIN and world.controllers >= CONTROLLERS_MIN
    return first_ms if counts and faults * FAULT_MS_MAX >= first_ms else 0.0


def _count(judged: Judged, kind: str) -> int:
    return sum(event.kind == kind for event in judged.history.events)


def _reported(result: SeedRun, script: Script, judged: Judged, options: Options, run: Run) -> SeedRun:
    """Repeat a failing run, reduce its script, save it, and write its report."""
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        replay(script, run, first=judged)
    except NotReplayable as error:
        path = _save(script, folder / f"{NOT_DETERMINISTIC}-{result.seed}.json", NOT_DETERMINISTIC)
        lines = [f"{NOT_DETERMINISTIC}  seed {result.seed}", str(error), f"  replay: python -m tests.sim replay {path}"]
        return msgspec.structs.replace(result, signature=NOT_DETERMINISTIC, report=lines, file=str(path))
    story = ""
    number = judged.signature.split(" ")[0]
    path = _save(script, folder / f"{number}-{result.seed}.json", judged.signature)
    if options.shrink_cpu_s:
        run_first = judge_first_phase if run is judge else None
        shrunk = shrink(script, run, limits=Limits(cpu_s=options.shrink_cpu_s), run_first=run_first)
        after = len(shrunk.script.actions)
        story = f"shrunk {shrunk.actions_before} -> {after} actions in {shrunk.cpu_s:.0f} CPU-s, {shrunk.runs} runs"
        script, judged = shrunk.script, run(shrunk.script)
        _save(script, path, judged.signature)
    origin = Origin(result.seed, options.commit, f"python -m tests.sim replay{options.replay_options} {path}", story)
    lines = report(script, judged, origin)
    return msgspec.structs.replace(result, report=lines, file=str(path), actions=len(script.actions))


def _save(script: Script, path: Path, signature: str) -> Path:
    named = msgspec.structs.replace(script, name=path.stem, expect=signature)
    path.write_text(dumps(named), encoding="utf-8")
    return path


def main() -> None:
    """Explore as the one argument says, and print the results."""
    encode = msgspec.json.Encoder().encode
    for result in explore(msgspec.json.decode(sys.argv[1], type=Options)):
        sys.stdout.buffer.write(encode(result) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
