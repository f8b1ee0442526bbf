"""Import contracts are kept, their checker detects violations, and the text contains no machine-specific names."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import tree


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Check the import contracts of the tree at `root`. Exit code 0: all kept; 1: one is broken."""
    run = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True, no_logo=True))"
    return subprocess.run([sys.executable, "-c", run], cwd=root, capture_output=True, text=True, check=False)


def test_import_contracts_are_kept() -> None:
    done = lint_imports(tree.ROOT)

    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


# An import that breaks a contract: its file and line, the contract, and the output of the checker.
LAYERS = "Imports point down the layers"
PURE = "The deciding part does no I/O and knows neither time nor chance"
FORBIDDEN = {
    "a layer that looks up": (
        "kactl/model/errors.py",
        "from kactl.runtime import clock",
        LAYERS,
        "kactl.model.errors -> kactl.runtime.clock",
    ),
    "a module without a layer": ("kactl/elsewhere.py", "import math", LAYERS, "- kactl.elsewhere\n"),
    "a machine that waits": (
        "kactl/decide/machines/partition.py",
        "import asyncio",
        PURE,
        "machines.partition -> asyncio",
    ),
    "a table that knows the time": (
        "kactl/decide/state/table.py",
        "from time import monotonic",
        PURE,
        "state.table -> time",
    ),
    "an actor that knows another": (
        "actors/watcher.py",
        "from kactl.actors import controller",
        "Actors know each other by what they say; only the system knows them all",
        "kactl.actors.watcher -> kactl.actors.controller",
    ),
    "an actor that knows a store": (
        "actors/controller.py",
        "import kactl.stores.sqlite",
        "Only the system and the command line know concrete stores",
        "kactl.actors.controller -> kactl.stores.sqlite",
    ),
    "an actor that knows a transport": (
        "actors/channel.py",
        "import kactl.transports.memory",
        "Only the system, listeners and the command line know transports",
        "kactl.actors.channel -> kactl.transports.memory",
    ),
}


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns the output of the checker for a copy of the package with all forbidden imports."""
    folder = tmp_path_factory.mktemp("tree")
    for name in tree.PACKAGE_FOLDERS:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(tree.ROOT / name, folder / name, symlinks=True, ignore=ignore)
    shutil.copyfile(tree.ROOT / "pyproject.toml", folder / "pyproject.toml")
    for file, line, _, _ in FORBIDDEN.values():
        with (folder / file).open("a", encoding="utf-8") as module:
            module.write(f"\n{line}\n")
    done = lint_imports(folder)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("contract", "finding"), [of[2:] for of in FORBIDDEN.values()], ids=FORBIDDEN.keys())
def test_forbidden_import_is_detected(findings: str, contract: str, finding: str) -> None:
    _, _, broken = findings.partition("Broken contracts")
    _, _, of_contract = broken.partition(f"\n{contract}\n---")
    of_contract, *_ = re.split(r"\n.+\n---", of_contract)

    assert f"{contract} BROKEN" in findings
    assert finding in of_contract, findings


def test_no_transport_is_written_to_by_writelines() -> None:
    """asyncio's own implementation in Python 3.12 and 3.13 has no flow control (gh-127655) and no check of the
    connection (gh-136234)."""
    uses = [name for name, file in tree.modules().items() if ".writelines(" in file.read_text(encoding="utf-8")]

    assert not uses


# These run outside simulations only.
REAL = ("kactl.admin.", "kactl.testing.fault_proxy", "kactl.transports.kafka.listener.")


def test_simulated_code_takes_the_same_steps_on_every_python() -> None:
    """`asyncio.gather` takes one step more in Python 3.11 than later if its tasks have ended."""
    uses = [name for name, file in tree.modules().items() if "asyncio.gather(" in file.read_text(encoding="utf-8")]

    assert uses
    assert not [name for name in uses if not name.startswith(REAL)]


# Machine paths and registry mirrors. Each pattern is put together here, so that this file does not match.
FOREIGN = ["/" + "work/", ".." + "/shared", "/" + "root/", "py" + "pi.org", "python" + "hosted.org", "repo1." + "maven"]


def test_tracked_text_has_no_machine_paths_or_mirrors() -> None:
    found = []
    for file in tree.tracked_files():
        if file.is_symlink() or b"\0" in (content := file.read_bytes()):
            continue
        text = content.decode("utf-8", errors="replace")
        found += [f"{file.relative_to(tree.ROOT)}: {word}" for word in FOREIGN if word in text]

    assert not found
