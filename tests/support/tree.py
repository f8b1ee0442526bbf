"""The project tree: its root, its files, and its pyproject."""

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]

# Folder at the top -> the name its modules are imported by.
PACKAGE_FOLDERS: Final = {"kactl": "kactl", "actors": "kactl.actors", "transports": "kactl.transports"}


@cache
def pyproject() -> dict[str, Any]:
    """Returns pyproject.toml as plain values."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def require_history() -> None:
    """Skip the test where the tree has no complete history: in a source archive, and in a shallow clone."""
    if not (ROOT / ".git").exists():
        pytest.skip("there is no history in a source archive")
    command = ["git", "rev-parse", "--is-shallow-repository"]
    if subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip() == "true":
        pytest.skip("a shallow clone has no complete history")


def tracked_files() -> list[Path]:
    """Returns the absolute paths of the project's files: committed, or new and not ignored. Links are listed as
    links."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    named = (ROOT / name for name in listed.stdout.split("\0") if name)
    return [file for file in named if file.is_symlink() or file.exists()]  # a file may be deleted and not yet committed


def modules() -> dict[str, Path]:
    """Returns the file of every module of the package by import name; a package has its `__init__.py`."""
    found: dict[str, Path] = {}
    for folder, name in PACKAGE_FOLDERS.items():
        for file in (ROOT / folder).rglob("*.py"):
            inside = file.relative_to(ROOT / folder)
            if folder == "kactl" and inside.parts[0] in PACKAGE_FOLDERS:
                continue  # reached through a link; it is listed under its own folder
            parts = (*inside.parent.parts, *(() if inside.stem == "__init__" else (inside.stem,)))
            found[".".join((name, *parts))] = file
    return found


def packages() -> set[str]:
    """Returns the names of all folders with an `__init__.py`."""
    return {name for name, file in modules().items() if file.name == "__init__.py"}


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yields the statements directly within a module or statement. Expressions, most of a tree, contain none."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, (ast.excepthandler, ast.match_case)):
            yield from statements(child)
