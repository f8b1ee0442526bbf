"""Throughput of log ingest and of every forensic job, over the logs of a synthetic cluster in trouble.

    python -m bench.forensics [--lines 2_000_000,20_000_000] [--runs 3] [--job-runs 1] [--logs FOLDER] [--full]

The logs are generated first (`tests/support/kafka_logs`): brokers of several versions, at INFO and at TRACE, some in
containers, rotated hourly, a third of them compressed. Two Spark sessions follow. The first is configured like
`kactl forensics ingest`:

* `first`: the first ingest of the session. It includes the start of Spark's Python workers and the loading and
  compilation of Java code.
* `warm`: every later ingest.

The second has its own Java process and is configured like `kactl forensics report`:

* `all jobs`: all jobs, several in parallel, as in `kactl forensics report`.
* `jobs`: one job at a time, which yields the processor time of each. Its inputs were written by the jobs before it.

Above five million lines the default is one warm ingest and no jobs, which take long at that size: `--runs` and
`--job-runs` change that.

Each time is accompanied by the processor time of all processes, Java and Python, and by both per line. The driver may
collect at most 64 MB of results, so that a result that grows with the logs is detected.
"""

import argparse
import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.kafka_logs.generate import generate
from tests.support.kafka_logs.simulation import Settings
from tests.support.kafka_logs.truth import Truth, read

from .figures import Found
from .machine import machine
from .processor_time import cpu_s
from .run import main, module, numbers, say, words
from .tables import number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "forensics"
VERSIONS: Final = ("2.8:info", "3.9:trace", "2.2:trace", "3.2:info", "3.9:info")
LINES: Final = (2_000_000,)
FULL_LINES: Final = (2_000_000, 20_000_000)
RUNS: Final = 3
_MANY_LINES: Final = 5_000_000
# Limit of results that the driver collects: tables for readers, and counts by broker.
_RESULTS: Final = "64m"
_LINES_A_BROKER: Final = 600_000
_BROKERS: Final = (3, 30)
_PARTITIONS_A_BROKER: Final = 200


def settings(lines: int, *, seed: int, brokers: int = 0, partitions: int = 0) -> Settings:
    """Returns the settings of a cluster that writes this number of lines."""
    brokers = brokers or min(_BROKERS[1], max(_BROKERS[0], lines // _LINES_A_BROKER))
    partitions = partitions or min(brokers * _PARTITIONS_A_BROKER, max(30, lines // 1000))
    return Settings(
        seed=seed, lines=lines, brokers=brokers, partitions=partitions, versions=VERSIONS, noise=2.0, rounds=0
    )


@contextlib.contextmanager
def logs(asked: argparse.Namespace, found: Found, lines: int) -> Iterator[tuple[Path, Truth]]:
    """Yields a folder of logs: in the named folder, generated if missing, or in a temporary one."""
    with tempfile.TemporaryDirectory(prefix="kactl-forensics-") as scratch:
        folder = (asked.logs or Path(scratch)) / f"{lines}-lines"
        if not folder.exists():
            began = time.perf_counter()
            generated = settings(lines, seed=found.seed, brokers=asked.brokers, partitions=asked.partitions)
            truth = generate(generated, folder)
            say(f"{truth.lines:,} lines generated in {time.perf_counter() - began:.0f} s")
        yield folder, read(folder)


class Spent:
    """Recorder of the time and processor time of steps."""

    def __init__(self, found: Found) -> None:
        self._found = found

    @contextlib.contextmanager
    def on(self, name: str, lines: int) -> Iterator[None]:
        """Measures the block as one run."""
        used, began = cpu_s(), time.perf_counter()
        yield
        self.note(name, lines, time.perf_counter() - began, cpu_s() - used)

    def note(self, name: str, lines: int, took: float, used: float) -> None:
        self._found.add(f"{name}/time", "s", took)
        self._found.add(f"{name}/processor", "s", used)
        self._found.add(f"{name}/line", "us", took * 1e6 / lines)
        self._found.add(f"{name}/line, processor", "us", used * 1e6 / lines)


class Steps:
    """Recorder of the time of each job, from progress callbacks at its start."""

    def __init__(self, spent: Spent, name: str, lines: int) -> None:
        self._spent, self._name, self._lines = spent, name, lines
        self._current: tuple[str, float, float] | None = None

    def on_progress(self, step: str, done: int, total: int) -> None:
        if self._current is None or self._current[0] != step:
            self.end()
            self._current = (step, time.perf_counter(), cpu_s())

    def end(self) -> None:
        if self._current is not None:
            step, began, used = self._current
            self._spent.note(f"{self._name}/{step}", self._lines, time.perf_counter() - began, cpu_s() - used)
            self._current = None


def ingest_logs(spark: "SparkSession", folder: Path, out: Path, *, name: str, lines: int, spent: Spent) -> None:
    from kactl.forensics.ingest import ingest

    shutil.rmtree(out, ignore_errors=True)
    sources = [str(path) for path in sorted(folder.iterdir()) if path.name != "truth.json"]
    with spent.on(name, lines):
        done = ingest(spark, sources, str(out))
    assert done.manifest.lines == lines, f"{done.manifest.lines:,} lines were read of {lines:,}"
    assert done.manifest.unparsed == 0, f"{done.manifest.unparsed:,} lines have no known format"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lines",
        type=numbers,
        help=f"numbers of lines, separated by commas; {LINES} by default, {FULL_LINES} with --full",
    )
    parser.add_argument("--brokers", type=int, default=0, help="0: 3 to 30, depending on the lines")
    parser.add_argument("--partitions", type=int, default=0, help="0: depending on the lines")
    parser.add_argument("--logs", type=Path, help="folder in which logs are kept and reused")
    parser.add_argument("--out", type=Path, help="folder in which tables are kept")
    parser.add_argument("--only", type=words, help="jobs, separated by commas; by default all")
    parser.add_argument("--memory", default="2g", help="heap of Spark's Java process")
    parser.add_argument("--runs", type=int, help=f"warm ingests: {RUNS} by default, 1 above five million lines")
    parser.add_argument("--job-runs", type=int, help="runs of all jobs: 1 by default, none above five million lines")
    parser.add_argument("--full", action="store_true", help="the sizes of a published run")


async def measure(asked: argparse.Namespace, found: Found) -> None:
    sizes = asked.lines or (FULL_LINES if asked.full else LINES)
    found.settings["lines"] = sizes
    for number_, lines in enumerate(sizes):
        with logs(asked, found, lines) as (folder, truth):
            one_size(asked, found, folder, truth.lines, name=f"{lines}", is_first=not number_)


def one_size(asked: argparse.Namespace, found: Found, folder: Path, lines: int, *, name: str, is_first: bool) -> None:
    """Measures ingest and every job over logs of one size."""
    from kactl.forensics.jobs.running import run_jobs
    from kactl.forensics.session import spark_session

    spent, cores = Spent(found), machine(loop="none").cores
    is_many = lines > _MANY_LINES
    runs = asked.runs or (1 if is_many else RUNS)
    job_runs = int(not is_many) if asked.job_runs is None else asked.job_runs
    with tempfile.TemporaryDirectory(prefix="kactl-forensics-") as scratch:
        out = (asked.out or Path(scratch)) / f"{name}-lines"
        found.add(f"{name}/lines", "count", lines)
        used, began = cpu_s(), time.perf_counter()
        more = {"spark.driver.maxResultSize": _RESULTS}
        with spark_session(memory=asked.memory, events=0, more=more) as spark:
            if is_first:
                found.add("start of Spark/time", "s", time.perf_counter() - began)
                found.add("start of Spark/processor", "s", cpu_s() - used)
            for run in ("first", *(["warm"] * runs)):
                ingest_logs(spark, folder, out, name=f"{name}/ingest/{run}", lines=lines, spent=spent)
                _say_speed(found, f"{name}/ingest/{run}", lines, cores)
        if not job_runs:
            return
        with spark_session(memory=asked.memory, more=more) as spark:
            for _ in range(job_runs):
                with spent.on(f"{name}/all jobs", lines):
                    run_jobs(spark, str(out), only=asked.only)
                # Again one at a time, because the processor time of parallel jobs cannot be attributed.
                steps = Steps(spent, f"{name}/jobs", lines)
                with spent.on(f"{name}/one by one", lines):
                    results = run_jobs(spark, str(out), only=asked.only, at_once=1, on_progress=steps.on_progress)
                    steps.end()
                at_once, singly = (found.runs(f"{name}/{mode}/time")[-1] for mode in ("all jobs", "one by one"))
                say(f"{name}/jobs: {at_once:.1f} s, one by one {singly:.1f} s")
            for job, ran in results.manifest.jobs.items():
                found.add(f"{name}/jobs/{job}/rows", "count", ran.rows)


def _say_speed(found: Found, name: str, lines: int, cores: int) -> None:
    took, used = (found.runs(f"{name}/{figure}")[-1] for figure in ("time", "processor"))
    say(
        f"{name}: {number(lines / took)} lines per second; with {cores} cores "
        f"of its own {number(cores * lines / used)}; "
        f"{number(took)} s, {number(used)} s of processor"
    )


if __name__ == "__main__":
    main(module(__name__))
