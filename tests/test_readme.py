"""The README is current: its program is tested, its configuration is valid, and its files exist."""

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


def test_readme_program_is_the_tested_one() -> None:
    embedded, several_hosts = blocks("python")

    assert embedded == (ROOT / "tests" / "examples" / "embed.py").read_text()
    _, _, code = (ROOT / "examples" / "single_leader.py").read_text().rpartition('"""\n')
    assert several_hosts == code.lstrip()


def test_readme_configuration_is_valid(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    file = tmp_path / "kactl.toml"
    file.write_text(text)

    config = load(file)

    assert config.node_id == tomllib.loads(text)["node-id"]
    assert config.store.kind == "zookeeper"
    assert config.controller.takeover


def commands() -> list[str]:
    """Returns the commands of the shell blocks, without comments."""
    lines = [line.split("  #")[0] for block in blocks("sh") for line in block.splitlines()]
    return [each.strip() for line in lines for each in line.split("&&") if each.strip().startswith("kactl ")]


@pytest.mark.parametrize("command", commands())
def test_readme_commands_are_valid(command: str) -> None:
    found: click.Command = kactl
    _, *words = shlex.split(command)
    while isinstance(found, click.Group) and words and words[0] in found.commands:
        found = found.commands[words.pop(0)]

    found.make_context(command, words).close()  # parses the words as the command line does, without executing


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:kactl|actors|transports)/[\w/.]*)`", README))))
def test_named_files_exist(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("path", re.findall(r"\]\((?!http)([^)]+)\)", README))
def test_linked_pages_exist(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("target", re.findall(r"^make (\w+)$", README, re.MULTILINE))
def test_named_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
