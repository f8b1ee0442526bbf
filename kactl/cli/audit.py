"""`kactl audit`: files of the audit trail."""

from pathlib import Path

import click
import msgspec

from . import output, setup
from .common_options import Settings, options
from .exits import Exit, Failure, of_system


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What the files contain, as `-o json` prints it."""

    folder: str
    records: int
    first: int
    last: int
    problems: tuple[str, ...]


@click.group(short_help="Check the files of the audit trail.")
def audit() -> None:
    """Check the files of the audit trail, which `[audit]` of the configuration describes."""


@audit.command(short_help="Find missing and changed records.")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--config", metavar="FILE", help="Configuration that names the folder.")
@options
def verify(settings: Settings, *, folder: Path | None, config: str | None) -> None:
    """Compare the numbers of all records, which have no gaps unless records were removed or lost.

    Exit code 1 if there is a gap, a repetition, or a line that is no record. Records that were removed at the end, or
    with the oldest file, leave no gap.
    """
    from kactl.admin.audit_file import verify as verified

    wanted = _folder(folder, config)
    form = settings.form()
    try:
        found = verified(wanted)
    except OSError as error:
        raise of_system(error, str(wanted)) from None
    if form == "table":
        output.print_lines(map(output.harmless, found.problems))
        span = f", {found.first} to {found.last}" if found.records else ""
        settings.note(f"{wanted}: {found.records} records{span}; {len(found.problems)} problems.")
    else:
        shown = Verification(folder=str(wanted), **found._asdict())
        if form == "json":
            output.print_json(shown)
        else:
            output.print_jsonl([shown])
    if found.problems:
        click.get_current_context().exit(Exit.FAILED)


def _folder(folder: Path | None, config: str | None) -> Path:
    if folder is not None:
        return folder
    named = setup.read_config(config).audit.folder if config is not None else ""
    if not named:
        raise Failure(
            "FOLDER: name the folder of the audit trail, or with --config a file with audit.folder", Exit.USAGE
        )
    return Path(named)
