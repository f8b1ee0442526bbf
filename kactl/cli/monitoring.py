"""`kactl monitoring`: the dashboard and the alert rules that belong to this version."""

from importlib import resources
from pathlib import Path
from typing import Final

import click

from .common_options import Settings, with_options
from .exits import Exit, Failure, of_system

FILES: Final = ("alerts.yml", "grafana.json")
# The page that the rules link to, in the documentation of kactl.
_RUNBOOK: Final = "docs/runbook.md"


@click.group()
def monitoring() -> None:
    """Write a dashboard for Grafana and alert rules for Prometheus."""


@monitoring.command(short_help="Write the dashboard and the alert rules into a folder.")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--runbook", metavar="URL", help=f"Address of the runbook, which alerts link to.  [{_RUNBOOK}]")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@with_options((), server=False)
def export(settings: Settings, *, folder: Path, runbook: str | None, force: bool) -> None:
    """Write alerts.yml, rules for Prometheus, and grafana.json, a dashboard to import, into DIR.

    They use the metrics of this version of kactl. The names of the Prometheus jobs have to contain `kactl`, one job for
    each cluster.
    """
    found = [name for name in FILES if (folder / name).exists()]
    if found and not force:
        raise Failure(f"{folder / found[0]}: exists: name another folder, or replace it with --force", Exit.USAGE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (folder / name).write_text(content(name, runbook=runbook), encoding="utf-8")
    except OSError as error:
        raise of_system(error, str(folder)) from None
    settings.note(f"Written to {folder}: {', '.join(FILES)}.")


def content(name: str, *, runbook: str | None = None) -> str:
    """Returns the text of a file; its alerts link to a runbook at another address if one is given."""
    text = resources.files("kactl.telemetry").joinpath("monitoring", name).read_text(encoding="utf-8")
    return text if runbook is None else text.replace(f" {_RUNBOOK}#", f" {runbook.rstrip('#')}#")
