"""Kinds of clusters with incidents: generated logs, ingested, with the results of every job."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from kactl.forensics.ingest import Ingested, ingest
from kactl.forensics.jobs.catalog import Results
from kactl.forensics.jobs.running import run_jobs
from tests.forensics.jobs.tables import rows
from tests.support.kafka_logs.check import Clock
from tests.support.kafka_logs.generate import generate
from tests.support.kafka_logs.simulation import Settings
from tests.support.kafka_logs.truth import Truth

Row = dict[str, Any]

# At INFO, the default from 2.6 on; at TRACE, the default before; and without ZooKeeper.
KINDS: Final = {
    "info": Settings(seed=1, versions=("2.8:info", "3.2:info", "3.9:info")),
    "trace": Settings(seed=2, versions=("3.9:trace", "2.8:trace", "2.2:trace"), partitions=40),
    "kraft": Settings(seed=3, kind="kraft", versions=("3.9:info",)),
    "kactl": Settings(seed=4, kind="kactl", versions=("3.9:info",)),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Analysis:
    """A history and the results for its logs."""

    truth: Truth
    done: Ingested
    results: Results

    def rows(self, name: str) -> list[Row]:
        return rows(self.results[name])

    @property
    def clock(self) -> Clock:
        return Clock(self.truth, self.rows("skew"))

    @property
    def silent(self) -> set[int]:
        """Brokers of a version that does not log the end of a follower's log."""
        return {broker for broker, version in self.truth.versions.items() if version < "2.6"}


def analyse(spark: SparkSession, settings: Settings, folder: Path, *, without: tuple[str, ...] = ()) -> Analysis:
    """Generates logs, removes some folders or files, and runs everything."""
    logs = folder / "logs"
    truth = generate(settings, logs)
    for name in without:
        for path in sorted(logs.glob(name)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (logs / "truth.json").unlink()
    done = ingest(spark, [str(logs)], str(folder / "out"))
    return Analysis(truth, done, run_jobs(spark, str(folder / "out")))
