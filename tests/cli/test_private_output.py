"""Files that kactl writes are for their owner alone, whatever the umask: they name hosts, topics and principals."""

import ast
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tree import ROOT

from .server import QUICK, Up, kactl

# Modules that open files for writing in another way, and why.
OTHERWISE = {
    "kactl/runtime/private_files.py": "has the functions for all others",
    "kactl/runtime/rotating_file.py": "opens with O_NOFOLLOW, mode 0600",
    "kactl/cli/monitoring.py": "text of the package for other programs, with no name in it",
    "kactl/cli/pki.py": "the cluster's name in a folder of mode 0700, and a temporary folder",
    "kactl/forensics/java.py": "a script in a temporary folder",
    "kactl/forensics/session.py": "settings of a log in a temporary folder",
}


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.lstat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]


def test_files_of_a_server_are_for_their_owner_alone(tmp_path: Path, no_umask: None) -> None:
    logs = tmp_path / "logs"
    up = Up(tmp_path, env={**QUICK, "KACTL_LOG__FOLDER": str(logs)})
    try:
        assert up("topic", "create", "orders", "--partitions", "3", "--replication-factor", "2").code == 0
        assert up("reassign", "plan", "--without", "1", "--out", tmp_path / "data" / "plan.json").code == 0
        backup = kactl("store", "backup", tmp_path / "data" / "backup", "--store", tmp_path / "data" / "kactl.db")
        found = {path.name for path in (*logs.iterdir(), *up.data_dir.rglob("*"))}
        wide = open_to_others(logs) + open_to_others(up.data_dir)
    finally:
        up.close()

    assert backup.code == 0, backup.err
    assert {"state-change.log", "plan.json", "backup", "kactl.db", "lock"} <= found
    assert any(name.startswith("partitions-") for name in found)
    assert wide == []


def test_plan_replaces_a_file_that_others_could_read(up: Up, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.touch(mode=0o644)

    up("topic", "create", "planned", "--replication-factor", "2")
    assert up("reassign", "plan", "--topic", "planned", "--balance", "--out", plan).code == 0

    assert stat.S_IMODE(plan.stat().st_mode) == 0o600


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize("is_written_by_spark", [False, True])
def test_tables_and_reports_are_for_their_owner_alone(
    tmp_path: Path, no_umask: None, is_written_by_spark: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "state-change.log"
    log.write_text(
        "[2024-03-05 08:00:00,000] INFO [Controller id=1 epoch=2] Changed partition orders-0 from NewPartition to "
        "OnlinePartition with state LeaderAndIsr(leader=1, leaderEpoch=0, isr=List(1, 2), zkVersion=0) "
        "(state.change.logger)\n"
    )
    if is_written_by_spark:
        monkeypatch.setattr("kactl.forensics.jobs.running.is_small", lambda spark: False)

    out = tmp_path / "out"
    assert kactl("forensics", "ingest", log, "--out", out, cwd=tmp_path).code == 0
    pages = ("--html", out / "a.html", "--markdown", out / "a.md")
    report = kactl("forensics", "report", "--dir", out, *pages, cwd=tmp_path)

    assert report.code == 0, report.err
    assert len(list(out.rglob("*.parquet"))) > 10
    assert open_to_others(tmp_path / "out") == []


class Writes(ast.NodeVisitor):
    """Finds calls that open files for writing."""

    def __init__(self) -> None:
        self.lines: list[int] = []

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        modes = [
            argument.value
            for argument in (*node.args[:2], *(keyword.value for keyword in node.keywords if keyword.arg == "mode"))
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        ]
        if name in ("write_text", "write_bytes", "touch"):
            self.lines.append(node.lineno)
        if name == "open" and any(set(mode) & set("wax+") and set(mode) <= set("wax+bt") for mode in modes):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr == "O_CREAT":
            self.lines.append(node.lineno)
        self.generic_visit(node)


def test_product_writes_files_by_one_function() -> None:
    found = {}
    for folder in ("kactl", "actors", "transports"):
        for path in (ROOT / folder).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            if name.startswith(("kactl/testing/", "kactl/actors", "kactl/transports")):
                continue  # simulated clusters; links to the other two folders
            writes = Writes()
            writes.visit(ast.parse(path.read_text()))
            if writes.lines:
                found[name] = writes.lines

    assert found.keys() == OTHERWISE.keys(), found
