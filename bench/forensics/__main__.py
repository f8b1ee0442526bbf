"""How fast logs become tables and answers: ingest and every job, over the logs of a synthetic cluster in trouble.

    python -m bench.forensics [--lines 2_000_000] [--runs 3] [--logs FOLDER] [--only NAMES] [--full]

The logs are made first (`bench/forensics/generate.py`): brokers of several versions, at INFO and at TRACE, some of them
in containers, rotated by the hour, a third of them packed. Then, in one process with Spark in it:

* `first`: the first ingest, which starts Spark's Python workers, and has Java compile what it runs.
* `warm`: each one after it.
* `jobs`: every job, as often; what it needs has been written by the jobs before it.

Beside the time of each stands the processor time of everything, Java and Python, and what a line costs in both. The
driver may collect no more than 64 MB of what jobs find, so that whatever grows with the logs is found here.
"""

import argparse
import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.figures import Found
from bench.machine import machine
from bench.run import main, module, say, words
from bench.tables import number

from .generate import generate
from .truth import Truth, read
from .usage import cpu_s
from .world import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "forensics"
VERSIONS: Final = ("2.8:info", "3.9:trace", "2.2:trace", "3.2:info", "3.9:info")
LINES: Final = 2_000_000
FULL_LINES: Final = 20_000_000
# What the driver may be sent: answers that people read, and counts by broker.
_RESULTS: Final = "64m"
_LINES_A_BROKER: Final = 600_000
_BROKERS: Final = (3, 30)
_PARTITIONS_A_BROKER: Final = 200


def settings(lines: int, *, seed: int, brokers: int = 0, partitions: int = 0) -> Settings:
    """A cluster that has so many lines to say."""
    brokers = brokers or min(_BROKERS[1], max(_BROKERS[0], lines // _LINES_A_BROKER))
    partitions = partitions or min(brokers * _PARTITIONS_A_BROKER, max(30, lines // 1000))
    return Settings(
        seed=seed, lines=lines, brokers=brokers, partitions=partitions, versions=VERSIONS, noise=2.0, rounds=0
    )


@contextlib.contextmanager
def logs(asked: argparse.Namespace, found: Found) -> Iterator[tuple[Path, Truth]]:
    """A folder of logs: the one that is named, made if it is not there, or one that goes away."""
    with tempfile.TemporaryDirectory(prefix="kactl-forensics-") as scratch:
        folder = asked.logs or Path(scratch) / "logs"
        if not folder.exists():
            began = time.perf_counter()
            asked_for = settings(asked.lines, seed=found.seed, brokers=asked.brokers, partitions=asked.partitions)
            truth = generate(asked_for, folder)
            say(f"{truth.lines:,} lines made in {time.perf_counter() - began:.0f} s")
        yield folder, read(folder)


class Spent:
    """Time and processor time, of one step after the other."""

    def __init__(self, found: Found) -> None:
        self._found = found

    @contextlib.contextmanager
    def on(self, at: str, lines: int) -> Iterator[None]:
        """The block, as one run of what it costs."""
        used, began = cpu_s(), time.perf_counter()
        yield
        self.note(at, lines, time.perf_counter() - began, cpu_s() - used)

    def note(self, at: str, lines: int, took: float, used: float) -> None:
        self._found.add(f"{at}/time", "s", took)
        self._found.add(f"{at}/processor", "s", used)
        self._found.add(f"{at}/line", "us", took * 1e6 / lines)
        self._found.add(f"{at}/line, processor", "us", used * 1e6 / lines)


class Steps:
    """Told of each job as it begins; what each has used."""

    def __init__(self, spent: Spent, at: str, lines: int) -> None:
        self._spent, self._at, self._lines = spent, at, lines
        self._now: tuple[str, float, float] | None = None

    def tell(self, step: str, done: int, total: int) -> None:
        if self._now is None or self._now[0] != step:
            self.end()
            self._now = (step, time.perf_counter(), cpu_s())

    def end(self) -> None:
        if self._now is not None:
            step, began, used = self._now
            self._spent.note(f"{self._at}/{step}", self._lines, time.perf_counter() - began, cpu_s() - used)
            self._now = None


def ingested(spark: "SparkSession", folder: Path, out: Path, *, at: str, lines: int, spent: Spent) -> None:
    from kactl.pipeline.ingest import ingest

    shutil.rmtree(out, ignore_errors=True)
    sources = [str(each) for each in sorted(folder.iterdir()) if each.name != "truth.json"]
    with spent.on(at, lines):
        done = ingest(spark, sources, str(out))
    assert done.manifest.lines == lines, f"{done.manifest.lines:,} lines were read of {lines:,}"
    assert done.manifest.unparsed == 0, f"{done.manifest.unparsed:,} lines were not understood"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lines", type=int, default=LINES, help=f"how many; with --full {FULL_LINES:,}")
    parser.add_argument("--brokers", type=int, default=0, help="0: 3 to 30, by the lines")
    parser.add_argument("--partitions", type=int, default=0, help="0: by the lines")
    parser.add_argument("--logs", type=Path, help="keep the logs there, and use those that are there")
    parser.add_argument("--out", type=Path, help="keep the tables there")
    parser.add_argument("--only", type=words, help="jobs, by commas; all of them otherwise, none with an empty list")
    parser.add_argument("--memory", default="2g", help="what Spark's Java may take")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--full", action="store_true", help="the size of a published run")


async def measure(asked: argparse.Namespace, found: Found) -> None:
    from kactl.pipeline.jobs.catalog import run_jobs
    from kactl.pipeline.session import spark_session

    if asked.full and asked.lines == LINES:
        asked.lines = FULL_LINES
    found.settings["lines"] = asked.lines
    spent, cores = Spent(found), machine(loop="none").cores
    with logs(asked, found) as (folder, truth), tempfile.TemporaryDirectory(prefix="kactl-forensics-") as scratch:
        out, lines = asked.out or Path(scratch) / "out", truth.lines
        at = f"{asked.lines}"
        found.add(f"{at}/lines", "count", lines)
        used, began = cpu_s(), time.perf_counter()
        more = {"spark.driver.maxResultSize": _RESULTS}
        with spark_session(memory=asked.memory, more=more) as spark:
            found.add(f"{at}/start of Spark/time", "s", time.perf_counter() - began)
            found.add(f"{at}/start of Spark/processor", "s", cpu_s() - used)
            for run in range(asked.runs + 1):
                where = f"{at}/ingest/warm" if run else f"{at}/ingest/first"
                ingested(spark, folder, out, at=where, lines=lines, spent=spent)
                _say_speed(found, where, lines, cores)
            if asked.only == ():
                return
            for _ in range(asked.runs):
                steps = Steps(spent, f"{at}/jobs", lines)
                with spent.on(f"{at}/all jobs", lines):
                    results = run_jobs(spark, str(out), only=asked.only, tell=steps.tell)
                    steps.end()
                say(f"jobs: {found.runs(f'{at}/all jobs/time')[-1]:.1f} s")
            for name, ran in results.manifest.jobs.items():
                found.add(f"{at}/jobs/{name}/rows", "count", ran.rows)


def _say_speed(found: Found, at: str, lines: int, cores: int) -> None:
    took, used = (found.runs(f"{at}/{what}")[-1] for what in ("time", "processor"))
    say(
        f"{at}: {number(lines / took)} lines a second; with {cores} cores of its own {number(cores * lines / used)}; "
        f"{number(took)} s, {number(used)} s of processor"
    )


if __name__ == "__main__":
    main(module(__name__))
