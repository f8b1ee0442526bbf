"""Docstrings as Markdown: sections become lists, and characters with a meaning in Markdown stand for themselves."""

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Final, NamedTuple

_SECTION: Final = re.compile(r"^(Args|Arguments|Attributes|Returns|Yields|Raises|Source|Usage):[ ]*(.*)$")
_ENTRY: Final = re.compile(r"^(\S(?:[^:`]|`[^`]*`)*?):(?:\s+(.*))?$")
_TITLES: Final = {"Args": "Arguments"}
# Sections of entries "name: description"; all others are text.
_ENTRIES: Final = ("Args", "Arguments", "Attributes", "Raises")
_CODE: Final = re.compile(r"(`+.*?`+)", re.DOTALL)
_SPECIAL: Final = re.compile(r"([\\<*_\[\]|$])")


class Docstring(NamedTuple):
    """Parts of a docstring.

    Attributes:
        text: paragraphs before the first section, as Markdown.
        sections: title and content of each section.
    """

    text: str
    sections: dict[str, str]

    def entries(self, section: str) -> dict[str, str]:
        """Returns the descriptions of a section by name. An entry for several names counts for each of them."""
        return {
            name.strip("` *"): words
            for names, words in _entries(self.sections.get(section, ""))
            for name in names.split(", ")
        }


def parsed(found: object) -> Docstring:
    """Returns the parts of an object's own docstring; empty ones without a docstring."""
    lines = (inspect.cleandoc(getattr(found, "__doc__", None) or "")).splitlines()
    text: list[str] = []
    sections: dict[str, str] = {}
    current: str | None = None
    for line in lines:
        begin = _SECTION.match(line)
        if begin is not None:
            current = begin[1]
            sections[current] = begin[2]
        elif current is not None and (line.startswith(" ") or not line):
            sections[current] += "\n" + line
        else:
            current = None
            text.append(line)
    return Docstring(_paragraphs(text), {title: inspect.cleandoc(content) for title, content in sections.items()})


def markdown(found: object) -> str:
    """Returns the docstring of an object as Markdown, with its sections below the text."""
    docstring = parsed(found)
    return "\n\n".join(filter(None, (docstring.text, *_sections(docstring))))


def escaped(text: str) -> str:
    """Returns prose as Markdown that shows it unchanged. Code between backticks stays as it is."""
    return "".join(part if part.startswith("`") else _SPECIAL.sub(r"\\\1", part) for part in _CODE.split(text))


def cell(text: str) -> str:
    """Returns Markdown for one cell of a table."""
    return " ".join(text.split()).replace("\\|", "|").replace("|", "\\|")


def _sections(docstring: Docstring) -> Iterator[str]:
    for title, content in docstring.sections.items():
        if title in _ENTRIES:
            listed = "\n".join(f"* `{name}`: {escaped(words)}" for name, words in _entries(content))
            yield f"**{_TITLES.get(title, title)}**\n\n{listed}"
        else:
            yield f"**{title}:** {escaped(' '.join(content.split()))}"


def _entries(content: str) -> Iterator[tuple[str, str]]:
    name, words = "", ""
    for line in content.splitlines():
        begin = None if line.startswith(" ") else _ENTRY.match(line)
        if begin is not None:
            if name:
                yield name, words
            name, words = begin[1].strip("`"), begin[2] or ""
        else:
            words = f"{words} {line.strip()}".strip()
    if name:
        yield name, words


def _paragraphs(lines: list[str]) -> str:
    """Escape paragraphs. Indented lines are diagrams or code, and remain."""
    blocks = "\n".join(lines).strip("\n").split("\n\n")
    return "\n\n".join(_block(block) for block in blocks)


def _block(block: str) -> str:
    if block.startswith("    ") or "\n    " in block:
        return f"```text\n{textwrap.dedent(block)}\n```"
    return "\n".join(line if line.startswith(("* ", "- ")) else escaped(line) for line in block.splitlines())
