"""What `kactl forensics` answers: run as anybody would run it, and read from the tables that it leaves."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from pyarrow import parquet

from tests.support.processes import HarnessError

# Spark starts within ten seconds on two idle cores; all jobs on so few lines take a minute.
RUN_S: Final = 600.0
JOBS: Final = "jobs"

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Answers:
    """What was answered.

    Attributes:
        folder: of the tables.
        files: what ingest says of each file.
        report: what the report says, as JSON.
        html: the page.
    """

    folder: Path
    files: list[Row]
    report: Row
    html: str

    def rows(self, job: str) -> list[Row]:
        """The table of a job."""
        found: list[Row] = parquet.read_table(self.folder / JOBS / job).to_pylist()
        return found


def ask(folder: Path, *logs: Path, zone: str) -> Answers:
    """Have logs ingested, and everything answered.

    Args:
        folder: for what comes of it.
        zone: of the logs.

    Raises:
        HarnessError: a command failed; quotes what it said.
    """
    out = folder / "forensics"
    said = run("ingest", *logs, "--out", out, "--tz", zone, "-o", "json")
    reported = run("report", "--dir", out, "--html", folder / "report.html", "-o", "json")
    page = (folder / "report.html").read_text()
    return Answers(out, json.loads(said)["files"], json.loads(reported), page)


def run(*words: object) -> str:
    """What a command of `kactl forensics` prints.

    Raises:
        HarnessError: it failed.
    """
    command = [sys.executable, "-m", "kactl.cli", "forensics", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    if done.returncode:
        raise HarnessError(f"{' '.join(command[3:])} ended with {done.returncode}:\n{done.stderr}{done.stdout}")
    return done.stdout
