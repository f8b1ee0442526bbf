"""Completion in the shells themselves: bash, zsh, fish."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .server import kactl

# Each prints what its shell offers after "kactl get partitions --of" or another line in $LINE, one per line.
BASH = """
source completion
read -ra COMP_WORDS <<< "$LINE"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_kactl_completion kactl
printf '%s\\n' "${COMPREPLY[@]}"
"""
# The functions that would show the words print them instead; they are given the name of an array.
ZSH = """
compdef() { }
compadd() { print -rl -- ${(P)5} }
_describe() { print -rl -- ${(P)3} }
source ./completion
words=(${=LINE})
CURRENT=$#words
_kactl_completion
"""
FISH = """
source completion
complete --do-complete "$LINE"
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
LINES = {
    "kactl sta": {"status"},
    "kactl get par": {"partitions"},
    "kactl get partitions --under": {"--under-min-isr"},
    "kactl get partitions -o y": {"yaml"},
    "kactl completion z": {"zsh"},
    "kactl topic set orders retention.m": {"retention.ms"},
    "kactl topic create orders --config message.timestamp.t": {"message.timestamp.type"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a program `kactl` of this interpreter."""
    folder = tmp_path_factory.mktemp("shells")
    program = folder / "kactl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kactl.cli "$@"\n')
    program.chmod(0o755)
    return folder


def offered(shell: str, line: str, folder: Path) -> set[str]:
    """Returns the words that a shell offers for the end of a line."""
    program = shutil.which(shell)
    if program is None:
        if os.environ.get("KACTL_REQUIRE_INTEROP") == "1":
            pytest.fail(f"{shell} is not installed")
        pytest.skip(f"{shell} is not installed")
    (folder / "completion").write_text(kactl("completion", shell).out)
    quiet = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [program, *quiet, "-c", SCRIPTS[shell]],
        cwd=folder,
        env={
            "PATH": f"{folder}:/usr/bin:/bin",
            "HOME": str(folder),
            "LINE": line,
            "PYTHONPATH": os.environ.get("PYTHONPATH", "") or str(Path(__file__).parents[2]),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    return {word.split("\t")[0].split(":")[0] for word in done.stdout.splitlines()}


@pytest.mark.slow  # each line starts a shell and an interpreter
@pytest.mark.parametrize("shell", SCRIPTS)
def test_shell_completes_commands_options_and_values(shell: str, folder: Path) -> None:
    for line, expected in LINES.items():
        assert offered(shell, line, folder) == expected, line


def test_unknown_shell_is_rejected() -> None:
    done = kactl("completion", "tcsh")

    assert done.code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in done.err


def test_commands_are_completed_without_being_imported() -> None:
    code = """
import os, sys
os.environ.update(_KACTL_COMPLETE="bash_complete", COMP_WORDS="kactl fo", COMP_CWORD="1")
from kactl.cli.root import kactl
try:
    kactl(prog_name="kactl")
except SystemExit:
    print(*(name for name in sys.modules if name.startswith("kactl.cli.")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    completed, imported = done.stdout.splitlines()
    assert completed == "plain,forensics"
    assert "kactl.cli.forensics" not in imported.split()
