"""`kactl reassign`: plan, start, list, verify and cancel reassignments."""

from typing import Final, TypedDict, Unpack

import click
import msgspec

from kactl.admin.schema import (
    PartitionName,
    PlanAnswer,
    PlanRequest,
    ReassignmentAnswer,
    ReassignmentList,
    ReassignmentRequest,
    ReassignmentTarget,
)
from kactl.runtime.private_files import open_private

from . import output
from .api_client import confirm, require_terminal
from .common_options import Settings, dry_run_option, given_file, options, reason_option, yes_option
from .exits import Exit, Failure
from .output import BAD, GOOD, WARN, Cell
from .partition_files import NamesFile, Targeted, Targets, ids, names_of, parsed, parsed_target, read, targets_of
from .reassignment_state import Standing, standings

# Number of completed reassignments named in one line.
LAST_NAMED_MAX: Final = 5
_PLAN: Final = ("PARTITION", "NOW", "PLANNED", "COPIES")
_RESULT: Final = ("PARTITION", "REPLICAS", "ADDING", "REMOVING", "EFFECT")
_RUNNING: Final = ("PARTITION", "LEADER", "ISR", "ADDING", "REMOVING", "WAITS FOR")
_STANDING: Final = ("PARTITION", "WANTED", "NOW", "STATE")
# As `-f FILE`.
_file_argument = click.argument("argument", required=False, metavar="[FILE]")


class _How(TypedDict):
    """Options of every command that changes the cluster."""

    dry_run: bool
    yes: bool
    reason: str


@click.group()
def reassign() -> None:
    """Move partitions to other replicas."""


@reassign.command("plan", short_help="Plan a reassignment; nothing is moved.")
@click.option("--topic", "topics", multiple=True, metavar="T", help="Plan this topic; may be repeated.  [all]")
@click.option("--brokers", metavar="ID,ID", help="Target brokers.  [all live brokers]")
@click.option("--without", metavar="ID,ID", help="Move replicas off these brokers, such as before decommissioning.")
@click.option("--replication-factor", type=click.IntRange(min=1), metavar="N", help="For every partition.  [unchanged]")
@click.option("--balance", is_flag=True, help="Also balance replicas and preferred leaders.")
@click.option("--out", metavar="FILE", help="Write the plan to a file, for `reassign apply -f`.")
@options
def plan_(
    settings: Settings,
    *,
    topics: tuple[str, ...],
    brokers: str | None,
    without: str | None,
    replication_factor: int | None,
    balance: bool,
    out: str | None,
) -> None:
    """Plan a reassignment with the fewest possible replica moves.

    Without options, the plan replaces replicas on dead brokers.
    """
    form = settings.form()
    request = PlanRequest(
        topics=list(topics) or None,
        brokers=None if brokers is None else ids(brokers, "--brokers"),
        without=[] if without is None else ids(without, "--without"),
        replication_factor=replication_factor,
        balance=balance,
    )
    answer = settings.api.post("/v1/reassignment-plans", request, PlanAnswer)
    if out is not None:
        _keep(out, answer)
    if form in output.DATA:
        output.print_data(form, answer, answer.items)
    elif answer.items:
        rows = [
            (
                f"{item.topic}-{item.partition}",
                output.numbers(item.current),
                output.numbers(item.replicas),
                len(set(item.replicas) - set(item.current)),
            )
            for item in answer.items
        ]
        output.print_lines(output.table(_PLAN, rows))
    if form == "table" and not settings.quiet:
        output.print_lines(_spread(answer), err=True)
    if not answer.items:
        settings.note(_nothing_to_move(answer, balance=balance))
        return
    settings.note(
        f"{output.count(len(answer.items), 'partition')} would change, {output.count(answer.moved, 'replica')} would be"
        f" copied, {output.count(answer.unchanged, 'partition')} would stay. Nothing was changed."
    )


def _nothing_to_move(answer: PlanAnswer, *, balance: bool) -> str:
    looked_at = output.count(answer.unchanged, "partition")
    if not answer.unchanged:
        return "There is no partition to plan for. Nothing was changed."
    if balance:
        reason = "no move would spread replicas or preferred leaders more evenly"
    else:
        reason = "every replica may stay where it is; --balance evens them out"
    return f"No move is needed: {looked_at} looked at, {reason}. Nothing was changed."


def _spread(answer: PlanAnswer) -> list[str]:
    """Returns a table of replicas and preferred leaders per broker, now and after the plan."""
    rows = [
        (str(item.broker), _step(item.replicas, item.replicas_planned), _step(item.preferred, item.preferred_planned))
        for item in answer.loads
    ]
    return output.table(("BROKER", "REPLICAS", "PREFERRED LEADERS"), rows) if rows else []


def _step(now: int, planned: int) -> str:
    return str(now) if now == planned else f"{now} -> {planned}"


def _keep(out: str, answer: PlanAnswer) -> None:
    targets = Targets([Targeted(item.topic, item.partition, list(item.replicas)) for item in answer.items])
    try:
        with open_private(out, "wb") as file:
            file.write(msgspec.json.encode(targets) + b"\n")
    except OSError as error:
        raise Failure(f"--out: {out} cannot be written ({error.strerror}); choose another file", Exit.USAGE) from None


@reassign.command(short_help="Start to move partitions.")
@_file_argument
@click.option(
    "-p", "--partition", "named", multiple=True, metavar="T-P:ID,ID", help="Target of a partition; may be repeated."
)
@click.option("-f", "--file", "file", metavar="FILE", help="File of `plan --out` or of Kafka's tools; -: stdin.")
@dry_run_option
@yes_option
@reason_option
@options
def apply(
    settings: Settings,
    *,
    named: tuple[str, ...],
    argument: str | None,
    file: str | None,
    **how: Unpack[_How],
) -> None:
    """Start to move partitions to other replicas; `reassign verify` shows when they are complete.

    The first replica is the preferred leader. If a partition is already being moved, its target is replaced.
    """
    file = given_file(click.get_current_context(), argument, file)
    if bool(named) == (file is not None):
        raise click.UsageError("specify targets with exactly one of -p T-P:ID,ID ... and -f FILE")
    targets = [parsed_target(text) for text in named] if file is None else targets_of(read(file, Targets))
    if not targets:
        settings.note("The plan is empty. Nothing was changed.")
        return
    _carry_out(settings, targets, **how)


@reassign.command(short_help="Cancel reassignments.")
@_file_argument
@click.option("--all", "everything", is_flag=True, help="All reassignments in progress.")
@click.option("-p", "--partition", "named", multiple=True, metavar="T-P", help="This partition; may be repeated.")
@click.option("-f", "--file", "file", metavar="FILE", help="Partitions of a file; -: stdin.")
@dry_run_option
@yes_option
@reason_option
@options
def cancel(
    settings: Settings,
    *,
    everything: bool,
    named: tuple[str, ...],
    argument: str | None,
    file: str | None,
    **how: Unpack[_How],
) -> None:
    """Return partitions to their previous replicas. Replicas that were added are deleted."""
    file = given_file(click.get_current_context(), argument, file)
    if sum((everything, bool(named), file is not None)) != 1:
        raise click.UsageError("select partitions with exactly one of --all, -p T-P ... and -f FILE")
    if everything:
        running = settings.api.get("/v1/reassignments", ReassignmentList).items
        names = [PartitionName(topic=item.topic, partition=item.partition) for item in running]
    elif file is not None:
        names = names_of(read(file, NamesFile))
    else:
        names = [parsed(text) for text in named]
    if not names:
        settings.note("No partition is being moved.")
        return
    targets = [ReassignmentTarget(topic=item.topic, partition=item.partition) for item in names]
    _carry_out(settings, targets, **how)


@reassign.command("list")
@options
def list_(settings: Settings) -> None:
    """List reassignments in progress, and what each of them waits for."""
    form = settings.form()
    running = settings.api.get("/v1/reassignments", ReassignmentList)
    if form in output.DATA:
        output.print_data(form, running, running.items)
    elif not running.items:
        settings.note(_none_running(running))
    else:
        rows = [
            (
                f"{item.topic}-{item.partition}",
                output.broker(item.leader),
                output.numbers(item.isr),
                output.numbers(item.adding),
                output.numbers(item.removing),
                item.waits_for,
            )
            for item in running.items
        ]
        output.print_lines(output.table(_RUNNING, rows))


def _none_running(running: ReassignmentList) -> str:
    """Returns that no reassignment is in progress, and the last completed ones."""
    line = "No partition is being moved"
    if not running.completed:
        return f"{line}."
    last = [f"{item.topic}-{item.partition}" for item in running.last_completed[:LAST_NAMED_MAX]]
    more = f" and {running.completed - len(last):,} more" if running.completed > len(last) else ""
    moment = output.moment(running.last_completed[0].completed_ms)
    return f"{line}; {output.count(running.completed, 'move')} complete, the last at {moment}: {', '.join(last)}{more}."


@reassign.command(short_help="Check whether a reassignment is complete.")
@_file_argument
@click.option(
    "-p", "--partition", "named", multiple=True, metavar="T-P:ID,ID", help="Target of a partition; may be repeated."
)
@click.option("-f", "--file", "file", metavar="FILE", help="File given to `apply`; -: stdin.")
@options
def verify(settings: Settings, *, named: tuple[str, ...], argument: str | None, file: str | None) -> None:
    """Check whether partitions have their target replicas. Exit code 0 if all have, 1 otherwise."""
    form = settings.form()
    file = given_file(click.get_current_context(), argument, file)
    if bool(named) == (file is not None):
        raise click.UsageError("specify targets with exactly one of -p T-P:ID,ID ... and -f FILE")
    targets = [parsed_target(text) for text in named] if file is None else targets_of(read(file, Targets))
    progress = standings(settings.api, targets)
    if form in output.DATA:
        output.print_data(form, progress, progress)
    elif progress:
        output.print_lines(output.table(_STANDING, [_standing(item) for item in progress]))
    complete = sum(item.state == "complete" for item in progress)
    settings.note(f"{complete:,} of {output.count(len(progress), 'partition')} complete.")
    if complete < len(progress):
        click.get_current_context().exit(Exit.FAILED)


def _standing(item: Standing) -> tuple[Cell, ...]:
    colour = {"complete": GOOD, "moving": WARN}.get(item.state, BAD)
    text = {"complete": "complete", "moving": "still moving", "elsewhere": "not moving, and elsewhere"}.get(
        item.state, "there is no such partition"
    )
    return (
        f"{item.topic}-{item.partition}",
        output.numbers(item.wanted),
        output.numbers(item.replicas),
        (text, colour),
    )


def _carry_out(settings: Settings, targets: list[ReassignmentTarget], **how: Unpack[_How]) -> None:
    dry_run = how["dry_run"]
    request = ReassignmentRequest(partitions=targets, dry_run=dry_run, reason=how["reason"])
    if not dry_run and not how["yes"]:
        _confirm(settings, request)
    answer = settings.api.post("/v1/reassignments", request, ReassignmentAnswer)
    if not settings.printed(answer, answer.results):
        output.print_lines(_results(answer))
        failed = sum(item.outcome == "failed" for item in answer.results)
        summary = f"{len(answer.results) - failed:,} {'would begin' if dry_run else 'begun'}, {failed:,} failed."
        settings.note(summary + (" Nothing was changed." if dry_run else ""))
    if any(item.outcome == "failed" for item in answer.results):
        click.get_current_context().exit(Exit.FAILED)


def _confirm(settings: Settings, request: ReassignmentRequest) -> None:
    """Show a preview and ask for confirmation.

    Raises:
        Failure: PRECONDITION; not confirmed, or there is no terminal.
    """
    require_terminal()
    preview = settings.api.post("/v1/reassignments", msgspec.structs.replace(request, dry_run=True), ReassignmentAnswer)
    for line in _results(preview):
        click.echo(line, err=True)
    confirm("Continue?")


def _results(answer: ReassignmentAnswer) -> list[str]:
    rows: list[tuple[Cell, ...]] = []
    for item in answer.results:
        effect: Cell = (("would begin" if answer.dry_run else "begun"), GOOD)
        if item.outcome == "failed":
            effect = (f"failed: {item.message} ({item.error_name})", BAD)
        rows.append(
            (
                f"{item.topic}-{item.partition}",
                output.numbers(item.replicas),
                output.numbers(item.adding),
                output.numbers(item.removing),
                effect,
            )
        )
    return output.table(_RESULT, rows)
