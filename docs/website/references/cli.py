"""Reference of the command line, from the commands themselves."""

import inspect
import textwrap
from collections.abc import Iterator
from typing import Final

import click

from kactl.cli.root import kactl

from .docstrings import cell, escaped

# Click's mark of a paragraph that is not wrapped.
_LINES: Final = "\b\n"


def cli_page() -> str:
    """Returns the page: one section for each command, in the order of `kactl --help`."""
    return "# Command line\n\n" + "\n\n".join(_sections(kactl, "kactl", None)) + "\n"


def _sections(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    path = context.command_path
    yield f"## {path}" if parent is not None else "## Common options"
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    yield f"```text\n{usage}\n```"
    yield from filter(None, (_help(command.help), *_options(command, context), _help(command.epilog)))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from _sections(below, name, context)


def _help(text: str | None) -> str:
    """Paragraphs of a help text. Those that begin with the mark `\\b` keep their lines."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(
        f"```text\n{textwrap.dedent(paragraph.removeprefix(_LINES)).strip()}\n```"
        if paragraph.startswith(_LINES)
        else escaped(paragraph.strip())
        for paragraph in paragraphs
        if paragraph.strip()
    )


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    shown = [record for record in records if record is not None and not record[0].startswith("-h,")]
    if shown:
        rows = "\n".join(f"| `{cell(option)}` | {cell(escaped(words))} |" for option, words in shown)
        yield f"| option | meaning |\n| --- | --- |\n{rows}"
