"""`kactl forensics explain-layout`: how the lines of a log are read."""

from typing import TYPE_CHECKING, Any

import click

from . import output
from .common_options import Settings, local_options
from .exits import Exit, Failure
from .forensic_inputs import errors_translated
from .forensics import layout_option
from .option_types import NAME_OF_LOG
from .output import NONE

if TYPE_CHECKING:
    from kactl.forensics.text.records import Cutter

_GROUPS = ("time", "level", "prefix", "message", "logger", "zone", "stream")


@click.command(short_help="Show which layout the lines of a log have, and their fields.")
@click.argument("log", type=NAME_OF_LOG)
@click.option("-n", "--lines", type=click.IntRange(1, 1000), default=10, show_default=True, help="Number of lines.")
@layout_option
@local_options
def explain_layout(settings: Settings, *, log: str, lines: int, layouts: tuple[str, ...]) -> None:
    """Show which layout the first lines of LOG have, and how their fields are cut.

    Exits with code 1 and the known layouts if no line has one of them, nor one of --layout.
    """
    form = settings.form()
    with errors_translated():
        from kactl.forensics.text.forms import ENVELOPES, LAYOUTS, Forms
        from kactl.forensics.text.probe import first_lines
        from kactl.forensics.text.records import Cutter

        cutter = Cutter(Forms(layouts))
        rows = [_row(number, line, cutter) for number, line in enumerate(first_lines(log, lines), 1)]
    if form in output.DATA:
        output.print_data(form, rows)
    else:
        for row in rows:
            fields = ", ".join(f"{name} {value}" for name in _GROUPS if (value := row[name]) is not None)
            output.print_lines([f"{row['line']}: {row['form'] or NONE}", f"   {fields or row['text']}"])
    if not any(row["form"] for row in rows):
        known = "\n".join(f"  {name:<22}{pattern}" for name, pattern in LAYOUTS.items())
        raise Failure(
            f"{log}: none of its first {output.count(len(rows), 'line')} has a known layout; name that of its logger "
            f"with --layout PATTERN. Known prefixes: {', '.join(ENVELOPES)}. JSON is read. Known layouts:\n{known}",
            Exit.FAILED,
        )


def _row(number: int, line: bytes, cutter: "Cutter") -> dict[str, Any]:
    cut = cutter.cut(line)
    texts = [
        None if field is None else field.decode("utf-8", "replace") for field in cut.fields or (None,) * len(_GROUPS)
    ]
    name = cut.form.name if cut.form is not None else None
    row = {name: output.harmless(text) if text else None for name, text in zip(_GROUPS, texts, strict=True)}
    return {"line": number, "form": name, **row, "text": output.harmless(cut.text.decode("utf-8", "replace"))}
