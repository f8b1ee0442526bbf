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


@pytest.fixture
def copy_of_the_tree(tmp_path: Path) -> Path:
    """A copy of the package and its contracts for a test to break."""
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in tree.PACKAGE_FOLDERS:
        shutil.copytree(tree.ROOT / folder, tmp_path / folder, symlinks=True, ignore=ignore)
    shutil.copyfile(tree.ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    return tmp_path


def test_import_contracts_are_kept() -> None:
    done = lint_imports(tree.ROOT)

    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


FORBIDDEN = {
    "a layer that looks up": ("kactl/errors.py", "from kactl.model import *", "Imports point down the layers"),
    "a module without a layer": ("kactl/elsewhere.py", "import math", "Imports point down the layers"),
    "a machine that waits": ("kactl/machines/partition.py", "import asyncio", "The deciding part does no I/O"),
    "a table that knows the time": (
        "kactl/state/table.py",
        "from time import monotonic",
        "The deciding part does no I/O",
    ),
    "an actor that knows another": (
        "actors/watcher.py",
        "from kactl.actors import controller",
        "Actors know each other by what they say",
    ),
    "an actor that knows a store": (
        "actors/controller.py",
        "import kactl.stores.sqlite",
        "Only the system and the command line know concrete stores",
    ),
    "an actor that knows a transport": (
        "actors/channel.py",
        "import kactl.transports.memory",
        "Only the system and the command line know concrete transports",
    ),
}


@pytest.mark.parametrize(("file", "line", "contract"), FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_forbidden_import_is_detected(copy_of_the_tree: Path, file: str, line: str, contract: str) -> None:
    with (copy_of_the_tree / file).open("a", encoding="utf-8") as module:
        module.write(f"\n{line}\n")

    done = lint_imports(copy_of_the_tree)

    verdict = re.search(rf"^{re.escape(contract)}.* (KEPT|BROKEN)", done.stdout, flags=re.MULTILINE)
    assert done.returncode == 1
    assert verdict is not None, done.stdout + done.stderr
    assert verdict[1] == "BROKEN"


def test_no_transport_is_written_to_by_writelines() -> None:
    """asyncio's own implementation in Python 3.12 and 3.13 has no flow control (gh-127655) and no check of the
    connection (gh-136234)."""
    uses = [name for name, file in tree.modules().items() if ".writelines(" in file.read_text(encoding="utf-8")]

    assert not uses


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
