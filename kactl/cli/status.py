"""`kactl status`: health checks of the cluster, with an exit code for scripts."""

import sys
import time
from typing import Any, Final

import click

from kactl.admin.schema import ClusterInfo, HealthCheck

from . import output
from .common_options import Settings, options
from .exits import Exit, Failure
from .output import BAD, GOOD, NONE, PLAIN, WARN, Cell
from .repeat import CLEAR, interval_option

_HEADER: Final = ("CHECK", "RESULT", "VALUE", "LIMIT", "DETAIL")
_SHOWN: Final[dict[str, Cell]] = {
    "pass": ("pass", GOOD),
    "warn": ("WARN", WARN),
    "fail": ("FAIL", BAD),
    "unknown": ("UNKNOWN", WARN),
    "skip": ("skip", PLAIN),
}
_COLOURS: Final[dict[str, dict[str, Any]]] = {"healthy": GOOD, "degraded": WARN, "unhealthy": BAD}


@click.command(short_help="Health checks; the exit code states the result.")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option("--exit-when-healthy", is_flag=True, help="Repeat until no check fails, at most for --timeout.")
@click.option("--warn-as-error", is_flag=True, help="Exit with code 5 if a check warns.")
@interval_option("Interval between checks.")
@options
def status(settings: Settings, *, watch: bool, exit_when_healthy: bool, warn_as_error: bool, interval_s: float) -> None:
    """Show the health checks of the cluster: offline partitions, missing redundancy, stuck operations.

    Exit codes: 0 healthy, 4 a check fails, 5 a check warns (with --warn-as-error), 3 the server cannot be reached. Any
    instance responds, also a standby; limits are set in `[health]` of its configuration.
    """
    form = settings.form()
    deadline = time.monotonic() + settings.timeout_s if exit_when_healthy else None
    while True:
        info = _poll(settings, form, deadline=deadline, watch=watch)
        code = Exit.UNREACHABLE if info is None else _code(info, warn_as_error=warn_as_error)
        done = code is Exit.DONE if exit_when_healthy else not watch
        late = deadline is not None and time.monotonic() + interval_s > deadline
        if done or late:
            # With --watch each response has been shown already; otherwise only the last one is.
            if info is not None and exit_when_healthy and not watch:
                _show(settings, form, info)
            if late and not done:
                settings.note(f"Not healthy within {settings.timeout_s:g} s.")
            click.get_current_context().exit(code)
        time.sleep(interval_s)


def _poll(settings: Settings, form: str, *, deadline: float | None, watch: bool) -> ClusterInfo | None:
    """Read the health once, and show it unless only the last one counts. Returns None if a retry follows."""
    try:
        info: ClusterInfo = settings.api.get("/v1/cluster", ClusterInfo)
    except Failure as failure:
        if failure.code is not Exit.UNREACHABLE or (deadline is None and not watch):
            raise
        settings.note(failure.message)
        return None
    if watch or deadline is None:
        if watch and form == "table" and sys.stdout.isatty():
            click.echo(CLEAR, nl=False)
        _show(settings, form, info)
    return info


def _code(info: ClusterInfo, *, warn_as_error: bool) -> Exit:
    if info.status == "unhealthy":
        return Exit.UNHEALTHY
    return Exit.WARNED if info.status == "degraded" and warn_as_error else Exit.DONE


def _show(settings: Settings, form: str, info: ClusterInfo) -> None:
    if not settings.printed(info):
        lines = [_headline(info), *output.table(_HEADER, map(_row, info.checks))]
        output.print_lines(line.rstrip() for line in lines)
        for check in info.checks:
            if check.remedy:
                settings.note(output.harmless(f"{check.name}: {check.remedy}"))


def _headline(info: ClusterInfo) -> str:
    status_ = click.style(info.status.upper(), **_COLOURS[info.status])
    controller = "no controller" if info.controller_id is None else f"controller {info.controller_id}"
    if info.is_active:
        since = ""
        if info.since_ms is not None:
            since = f", {output.duration(max(0.0, time.time() * 1000 - info.since_ms))}"
        controller += f"* (epoch {info.epoch}{since})"
    else:
        controller += f", seen by {info.node_id}, a standby"
    registered = info.brokers + info.brokers_dead
    shards = f"   shards {info.shards:,}" if info.shards else ""
    return (
        f"CLUSTER {output.harmless(info.cluster)}   {status_}   {controller}   brokers {info.brokers}/{registered}"
        f"   topics {info.topics:,}   partitions {info.partitions:,}{shards}"
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
