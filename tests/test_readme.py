"""The README says what is so: its program is the one that is tested, its configuration can be read, its files exist."""

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from kactl.cli.root import kactl
from kactl.config.file import load
from tests.support.tree import ROOT

README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_its_program_is_the_one_that_is_run_as_a_test() -> None:
    (program,) = blocks("python")

    assert program == (ROOT / "tests" / "examples" / "embed.py").read_text()


def test_its_configuration_can_be_used(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    file = tmp_path / "kactl.toml"
    file.write_text(text)

    config = load(file)

    assert config.node_id == tomllib.loads(text)["node-id"]
    assert config.store.kind == "zookeeper"
    assert config.controller.takeover


def commands() -> list[str]:
    """What a person is told to type, without the remarks behind it."""
    lines = [line.split("  #")[0] for block in blocks("sh") for line in block.splitlines()]
    return [each.strip() for line in lines for each in line.split("&&") if each.strip().startswith("kactl ")]


@pytest.mark.parametrize("command", commands())
def test_its_commands_are_understood(command: str) -> None:
    found: click.Command = kactl
    _, *words = shlex.split(command)
    while isinstance(found, click.Group) and words and words[0] in found.commands:
        found = found.commands[words.pop(0)]

    found.make_context(command, words).close()  # reads the words as the command line does, and does nothing


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:kactl|actors|transports)/[\w/.]*)`", README))))
def test_the_files_that_it_names_are_there(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("path", re.findall(r"\]\((?!http)([^)]+)\)", README))
def test_the_pages_that_it_points_at_are_there(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("target", re.findall(r"^make (\w+)$", README, re.MULTILINE))
def test_the_targets_that_it_names_are_in_the_makefile(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
