"""`kactl status`: health checks of the cluster, with an exit code for scripts."""

import sys
import time
from typing import Any, Final

import click

from kactl.admin.schema import ClusterInfo, HealthCheck

from . import output
from .exits import Exit, Failure
from .output import BAD, GOOD, NONE, PLAIN, WARN, Cell
from .settings import Settings, options

_HEADER: Final = ("CHECK", "RESULT", "VALUE", "LIMIT", "DETAIL")
_SHOWN: Final[dict[str, Cell]] = {
    "pass": ("pass", GOOD),
    "warn": ("WARN", WARN),
    "fail": ("FAIL", BAD),
    "unknown": ("UNKNOWN", WARN),
    "skip": ("skip", PLAIN),
}
_COLOURS: Final[dict[str, dict[str, Any]]] = {"healthy": GOOD, "degraded": WARN, "unhealthy": BAD}
INTERVAL_S: Final = 2.0
# A shorter pause would be load without news.
INTERVAL_S_MIN: Final = 0.1
_CLEAR: Final = "\x1b[H\x1b[2J"


@click.command(short_help="Health checks; the exit code states the result.")
@click.option("--watch", is_flag=True, help="Check again and again, until Ctrl-C.")
@click.option("--exit-when-healthy", is_flag=True, help="Check again until no check fails, for --timeout at the most.")
@click.option("--warn-as-error", is_flag=True, help="Warnings are not healthy: exit code 5.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=INTERVAL_S_MIN, max=3600.0),
    default=INTERVAL_S,
    show_default=True,
    metavar="SECONDS",
    help="Pause between two checks.",
)
@options
def status(settings: Settings, *, watch: bool, exit_when_healthy: bool, warn_as_error: bool, interval_s: float) -> None:
    """Show the health checks of the cluster: what is offline, what has too little reserve, what is stuck.

    Exit codes: 0 healthy, 4 a check fails, 5 a check warns (with --warn-as-error), 3 the server cannot be reached. Any
    instance answers, also one that stands by; limits are set in `[health]` of its configuration.
    """
    form = settings.form()
    deadline = time.monotonic() + settings.timeout_s if exit_when_healthy else None
    while True:
        found = _look(settings, form, deadline=deadline, watch=watch)
        code = Exit.UNREACHABLE if found is None else _code(found, warn_as_error=warn_as_error)
        done = code is Exit.DONE if exit_when_healthy else not watch
        late = deadline is not None and time.monotonic() + interval_s > deadline
        if done or late:
            # While waiting, only the last answer is shown; with --watch each was.
            if found is not None and exit_when_healthy and not watch:
                _show(settings, form, found)
            if late and not done:
                settings.note(f"Not healthy within {settings.timeout_s:g} s.")
            click.get_current_context().exit(code)
        time.sleep(interval_s)


def _look(settings: Settings, form: str, *, deadline: float | None, watch: bool) -> ClusterInfo | None:
    """One answer, shown unless it is only waited for; None if the server cannot be reached and will be asked again."""
    try:
        found: ClusterInfo = settings.api.get("/v1/cluster", ClusterInfo)
    except Failure as failure:
        if failure.code is not Exit.UNREACHABLE or (deadline is None and not watch):
            raise
        settings.note(failure.message)
        return None
    if watch or deadline is None:
        if watch and form == "table" and sys.stdout.isatty():
            click.echo(_CLEAR, nl=False)
        _show(settings, form, found)
    return found


def _code(found: ClusterInfo, *, warn_as_error: bool) -> Exit:
    if found.status == "unhealthy":
        return Exit.UNHEALTHY
    return Exit.WARNED if found.status == "degraded" and warn_as_error else Exit.DONE


def _show(settings: Settings, form: str, found: ClusterInfo) -> None:
    if form == "json":
        output.print_json(found)
    elif form == "jsonl":
        output.print_jsonl([found])
    else:
        lines = [_headline(found), *output.table(_HEADER, map(_row, found.checks))]
        output.print_lines(line.rstrip() for line in lines)
        for each in found.checks:
            if each.remedy:
                settings.note(output.harmless(f"{each.name}: {each.remedy}"))


def _headline(found: ClusterInfo) -> str:
    status_ = click.style(found.status.upper(), **_COLOURS[found.status])
    held = "no controller" if found.controller_id is None else f"controller {found.controller_id}"
    if found.is_active:
        since = ""
        if found.since_ms is not None:
            since = f", {output.duration(max(0.0, time.time() * 1000 - found.since_ms))}"
        held += f"* (epoch {found.epoch}{since})"
    else:
        held += f", seen by {found.node_id}, a standby"
    registered = found.brokers + found.brokers_dead
    return (
        f"CLUSTER {output.harmless(found.cluster)}   {status_}   {held}   brokers {found.brokers}/{registered}"
        f"   topics {found.topics:,}   partitions {found.partitions:,}"
    )


def _row(check: HealthCheck) -> tuple[Cell, ...]:
    return (
        check.name,
        _SHOWN[check.result],
        _figure(check.value, check.unit),
        _figure(check.limit, check.unit),
        check.detail,
    )


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return NONE
    if unit == "ms":
        return output.duration(value)
    return f"{value:g}%" if unit == "percent" else f"{value:,.0f}"
