"""Results of `kactl forensics`, run from the command line and read from its tables."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from pyarrow import parquet

from tests.support.processes import HarnessError

# Spark starts within ten seconds on two idle cores; all jobs over so few lines take a minute.
RUN_S: Final = 600.0
JOBS: Final = "jobs"

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Answers:
    """Results of one run.

    Attributes:
        folder: of the tables.
        files: the ingest result of each file.
        report: the report as JSON.
        html: the report as a page.
    """

    folder: Path
    files: list[Row]
    report: Row
    html: str

    def rows(self, job: str) -> list[Row]:
        """Return the table of a job."""
        found: list[Row] = parquet.read_table(self.folder / JOBS / job).to_pylist()
        return found


def ask(folder: Path, *logs: Path, zone: str) -> Answers:
    """Ingest logs, run all jobs, and create the report.

    Args:
        folder: for the output.
        zone: time zone of the logs.

    Raises:
        HarnessError: a command failed; contains its output.
    """
    out = folder / "forensics"
    summary = run("ingest", *logs, "--out", out, "--tz", zone, "-o", "json")
    reported = run("report", "--dir", out, "--html", folder / "report.html", "-o", "json")
    page = (folder / "report.html").read_text()
    return Answers(out, json.loads(summary)["files"], json.loads(reported), page)


def run(*words: object) -> str:
    """Run a command of `kactl forensics`. Returns its output.

    Raises:
        HarnessError: the command failed.
    """
    command = [sys.executable, "-m", "kactl.cli", "forensics", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    if done.returncode:
        raise HarnessError(f"{' '.join(command[3:])} ended with {done.returncode}:\n{done.stderr}{done.stdout}")
    return done.stdout
