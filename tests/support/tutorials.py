"""Code blocks of tutorials and how-to guides: files to write, and commands with the output that the page shows.

A `console` block contains commands after `$ `, each followed by its output. In an output `...` stands for any text
within a line; a line of `...` alone stands for any lines, or none. A `python` block begins with a comment that names
its file.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from .tree import ROOT

_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"# ([\w.-]+)\n")
ANY: Final = "..."


class Command(NamedTuple):
    """A command and the lines below it."""

    line: str
    output: tuple[str, ...]


class Tutorial:
    """A page with a session to repeat.

    Args:
        name: path of the page below docs/, without `.md`.

    Attributes:
        files: content by name.
        commands: all commands, in order.
    """

    def __init__(self, name: str) -> None:
        text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        blocks = _BLOCK.findall(text)
        assert len(blocks) * 2 == len(re.findall(r"^```", text, re.MULTILINE)), f"{name}: a block that is not found"
        self.files: dict[str, str] = {}
        for language, content in blocks:
            if language == "python":
                named = _FILE.match(content)
                assert named is not None, f"{name}: a block does not begin with the name of its file"
                self.files[named[1]] = content
        self.commands = [
            command for language, content in blocks if language == "console" for command in _commands(content)
        ]


def _commands(content: str) -> list[Command]:
    found: list[Command] = []
    for line in content.splitlines():
        if line.startswith("$ "):
            found.append(Command(line.removeprefix("$ "), ()))
        else:
            last = found.pop()
            found.append(last._replace(output=(*last.output, line)))
    return found


def shows(expected: Sequence[str], output: str) -> bool:
    """Returns whether an output is what the page shows. Spaces at the ends of lines are not compared."""
    lines = [line.rstrip() for line in output.rstrip("\n").split("\n")] if output else []
    return _matches([line.rstrip() for line in expected], lines)


def _matches(expected: list[str], lines: list[str]) -> bool:
    if not expected:
        return not lines
    first, *rest = expected
    if first == ANY:
        return any(_matches(rest, lines[skipped:]) for skipped in range(len(lines) + 1))
    pattern = ".*".join(map(re.escape, first.split(ANY)))
    return bool(lines) and re.fullmatch(pattern, lines[0]) is not None and _matches(rest, lines[1:])
