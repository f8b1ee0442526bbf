"""The README is short and current, with the pages that it was split into: commands, configuration and files exist.

`tests/worker/test_worker_processes.py` runs its program.
"""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Final

import click
import pytest

from kactl.cli.root import kactl
from kactl.config.file import load
from tests.support.tree import ROOT

README = (ROOT / "README.md").read_text()
WALK = (ROOT / "docs" / "walk-through.md").read_text()
OPERATING = (ROOT / "docs" / "operating.md").read_text()
WORDS_MAX: Final = 900


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_readme_is_read_in_one_go() -> None:
    assert len(README.split()) <= WORDS_MAX


def test_configuration_for_brokers_is_valid(tmp_path: Path) -> None:
    _, _, section = OPERATING.partition("## Over real Kafka brokers")
    text, *_ = blocks("toml", section)
    file = tmp_path / "kactl.toml"
    file.write_text(text)

    config = load(file)

    assert config.node_id == tomllib.loads(text)["node-id"]
    assert config.store.kind == "zookeeper"
    assert config.controller.takeover


def commands() -> list[str]:
    """Returns the commands of the shell blocks, without comments."""
    lines = [line.split("  #")[0] for block in (*blocks("sh"), *blocks("sh", WALK)) for line in block.splitlines()]
    return [each.strip() for line in lines for each in line.split("&&") if each.strip().startswith("kactl ")]


@pytest.mark.parametrize("command", commands())
def test_commands_are_valid(command: str) -> None:
    found: click.Command = kactl
    _, *words = shlex.split(command)
    while isinstance(found, click.Group) and words and words[0] in found.commands:
        found = found.commands[words.pop(0)]

    found.make_context(command, words).close()  # parses the words as the command line does, without executing


@pytest.mark.parametrize("path", re.findall(r"\]\((?!http)([^)]+)\)", README))
def test_linked_pages_exist(path: str) -> None:
    assert (ROOT / path.partition("#")[0]).exists()


@pytest.mark.parametrize("target", re.findall(r"^make (\w+)$", README, re.MULTILINE))
def test_named_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
