"""The tutorial about an incident, executed in the Spark session of the tests."""

import contextlib
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from kactl.cli import forensics
from kactl.cli.root import kactl
from tests.support.tree import ROOT
from tests.support.tutorials import Tutorial, shows


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies the logs of the tutorial into the working folder."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(ROOT / "examples" / "incident", tmp_path / "logs"))


# All jobs run, over few events.
@pytest.mark.slow
def test_investigation_shows_what_the_commands_print(
    logs: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def session(*_: object, **__: Any) -> Any:
        return contextlib.nullcontext(spark)

    monkeypatch.setattr(forensics, "session", session)
    commands = Tutorial("tutorials/investigate").commands

    for command in commands:
        _, group, name, *words = shlex.split(command.line)
        # The shared session runs in another working folder.
        words = [str(logs) if word == logs.name else word for word in words]
        done = CliRunner().invoke(kactl, [group, name, "--dir", str(logs.parent / "forensics"), *words])

        assert done.exit_code == 0, done.output
        assert shows(command.output, done.output), f"$ {command.line}\n{done.output}"

    assert Path("report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
