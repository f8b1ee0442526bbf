"""Temporary checkouts of other commits."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class NoSuchCommit(Exception):
    """The commit cannot be checked out, or has no simulator."""


@contextmanager
def at(revision: str) -> Iterator[Path]:
    """Check a commit out into a temporary folder, and remove it afterwards.

    Raises:
        NoSuchCommit: the current folder is in no repository, or has no such commit; or the commit has no simulator.
    """
    with tempfile.TemporaryDirectory(prefix="kactl-sim-") as temporary:
        folder = Path(temporary) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(folder), f"{revision}^{{commit}}", why=revision)
        try:
            if not command(folder):
                raise NoSuchCommit(f"commit {revision} has no simulator: choose a later one")
            yield folder
        finally:
            _git("worktree", "remove", "--force", str(folder), why=revision)


def command(folder: Path) -> list[str]:
    """Returns the module that runs the simulator of a checkout, and its first arguments; none if it has none."""
    if (folder / "tests" / "sim" / "__main__.py").is_file():
        return ["tests.sim"]
    if (folder / "kactl" / "testing" / "cli").is_dir():  # where it was at first
        return ["kactl.cli", "sim"]
    return []


def environment(folder: Path) -> dict[str, str]:
    """Returns the environment in which Python imports the package from a checkout."""
    return {**os.environ, "PYTHONPATH": str(folder)}


def _git(*arguments: str, why: str) -> None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise NoSuchCommit(f"git cannot be run: {error.strerror}: install it to replay other commits") from error
    if done.returncode:
        raise NoSuchCommit(
            f"commit {why} cannot be checked out: {done.stderr.strip()}: give a commit of the repository in the "
            "current folder"
        )
