"""`kactl reassign`: where replicas should go, and bringing them there."""

from pathlib import Path
from typing import Final

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

from . import output
from .client import confirm, require_terminal
from .exits import Exit, Failure
from .output import BAD, GOOD, WARN, Cell
from .partition_files import NamesFile, Targeted, Targets, ids, names_of, parsed, parsed_target, read, targets_of
from .reassigned import Standing, standings
from .settings import Settings, options, reason_option

# Completed moves named in one line.
LAST_NAMED_MAX: Final = 5
_PLAN: Final = ("PARTITION", "NOW", "PLANNED", "COPIES")
_RESULT: Final = ("PARTITION", "REPLICAS", "ADDING", "REMOVING", "EFFECT")
_RUNNING: Final = ("PARTITION", "LEADER", "ISR", "ADDING", "REMOVING", "WAITS FOR")
_STANDING: Final = ("PARTITION", "WANTED", "NOW", "STATE")


@click.group()
def reassign() -> None:
    """Move partitions to other replicas."""


@reassign.command("plan", short_help="Say where replicas should go; nothing is moved.")
@click.option("--topic", "topics", multiple=True, metavar="T", help="Of this topic; may be repeated.  [all]")
@click.option("--brokers", metavar="ID,ID", help="Onto these brokers.  [all that are live]")
@click.option("--without", metavar="ID,ID", help="Off these brokers, as before they are taken away.")
@click.option("--replication-factor", type=click.IntRange(min=1), metavar="N", help="For every partition.  [as it is]")
@click.option("--balance", is_flag=True, help="Even out replicas and preferred leaders, too.")
@click.option("--out", metavar="FILE", help="Keep the plan in a file, for `reassign apply -f`.")
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
    """Plan a reassignment that moves as little as it can.

    Without options the plan mends partitions that are assigned to dead brokers.
    """
    form = settings.form()
    asked = PlanRequest(
        topics=list(topics) or None,
        brokers=None if brokers is None else ids(brokers, "--brokers"),
        without=[] if without is None else ids(without, "--without"),
        replication_factor=replication_factor,
        balance=balance,
    )
    answer = settings.api.post("/v1/reassignment-plans", asked, PlanAnswer)
    if out is not None:
        _keep(out, answer)
    if form == "json":
        output.print_json(answer)
    elif form == "jsonl":
        output.print_jsonl(answer.items)
    elif answer.items:
        rows = [
            (
                f"{each.topic}-{each.partition}",
                output.numbers(each.current),
                output.numbers(each.replicas),
                len(set(each.replicas) - set(each.current)),
            )
            for each in answer.items
        ]
        output.print_lines(output.table(_PLAN, rows))
    if form == "table":
        for line in _spread(answer):
            settings.note(line)
    if not answer.items:
        settings.note(_nothing_to_move(answer, balance=balance))
        return
    settings.note(
        f"{output.count(len(answer.items), 'partition')} would change, {output.count(answer.moved, 'replica')} would be"
        f" copied, {output.count(answer.unchanged, 'partition')} would stay. Nothing was changed."
    )


def _nothing_to_move(answer: PlanAnswer, *, balance: bool) -> str:
    """Why a plan is empty."""
    looked_at = output.count(answer.unchanged, "partition")
    if not answer.unchanged:
        return "There is no partition to plan for. Nothing was changed."
    if balance:
        reason = "no move would spread replicas or preferred leaders more evenly"
    else:
        reason = "every replica may stay where it is; --balance evens them out"
    return f"No move is needed: {looked_at} looked at, {reason}. Nothing was changed."


def _spread(answer: PlanAnswer) -> list[str]:
    """How many replicas and preferred leaders each broker has, and would have."""
    rows = [
        (str(each.broker), _step(each.replicas, each.replicas_planned), _step(each.preferred, each.preferred_planned))
        for each in answer.loads
    ]
    return output.table(("BROKER", "REPLICAS", "PREFERRED LEADERS"), rows) if rows else []


def _step(now: int, planned: int) -> str:
    return str(now) if now == planned else f"{now} -> {planned}"


def _keep(out: str, answer: PlanAnswer) -> None:
    kept = Targets([Targeted(each.topic, each.partition, list(each.replicas)) for each in answer.items])
    try:
        Path(out).write_bytes(msgspec.json.encode(kept) + b"\n")
    except OSError as error:
        raise Failure(f"--out: {out} cannot be written ({error.strerror}); name another file", Exit.USAGE) from None


@reassign.command(short_help="Begin to move partitions.")
@click.option(
    "-p", "--partition", "named", multiple=True, metavar="T-P:ID,ID", help="This one, there; may be repeated."
)
@click.option("-f", "--file", "file", metavar="FILE", help="A file of `plan --out`, or of Kafka's tools; -: stdin.")
@click.option("--dry-run", is_flag=True, help="Say what would be, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@reason_option
@options
def apply(
    settings: Settings, *, named: tuple[str, ...], file: str | None, dry_run: bool, yes: bool, reason: str
) -> None:
    """Begin to move partitions to other replicas; `reassign verify` says when they are there.

    The first replica is the preferred leader. A partition that moves already is given the new target.
    """
    if bool(named) == (file is not None):
        raise click.UsageError("say what goes where: exactly one of -p T-P:ID,ID ... and -f FILE")
    targets = [parsed_target(text) for text in named] if file is None else targets_of(read(file, Targets))
    if not targets:
        settings.note("The plan is empty: nothing is to be moved, and nothing was changed.")
        return
    _carry_out(settings, targets, dry_run=dry_run, yes=yes, reason=reason)


@reassign.command(short_help="Stop moving partitions.")
@click.option("--all", "everything", is_flag=True, help="All that move.")
@click.option("-p", "--partition", "named", multiple=True, metavar="T-P", help="This one; may be repeated.")
@click.option("-f", "--file", "file", metavar="FILE", help="Those of a file; -: stdin.")
@click.option("--dry-run", is_flag=True, help="Say what would be, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@reason_option
@options
def cancel(
    settings: Settings,
    *,
    everything: bool,
    named: tuple[str, ...],
    file: str | None,
    dry_run: bool,
    yes: bool,
    reason: str,
) -> None:
    """Go back to the replicas of before. Replicas that were added are deleted."""
    if sum((everything, bool(named), file is not None)) != 1:
        raise click.UsageError("say which: exactly one of --all, -p T-P ... and -f FILE")
    if everything:
        running = settings.api.get("/v1/reassignments", ReassignmentList).items
        names = [PartitionName(topic=each.topic, partition=each.partition) for each in running]
    elif file is not None:
        names = names_of(read(file, NamesFile))
    else:
        names = [parsed(text) for text in named]
    if not names:
        settings.note("No partition is being moved.")
        return
    targets = [ReassignmentTarget(topic=each.topic, partition=each.partition) for each in names]
    _carry_out(settings, targets, dry_run=dry_run, yes=yes, reason=reason)


@reassign.command("list")
@options
def list_(settings: Settings) -> None:
    """List the moves that are going on, and what each of them waits for."""
    form = settings.form()
    running = settings.api.get("/v1/reassignments", ReassignmentList)
    if form == "json":
        output.print_json(running)
    elif form == "jsonl":
        output.print_jsonl(running.items)
    elif not running.items:
        settings.note(_none_running(running))
    else:
        rows = [
            (
                f"{each.topic}-{each.partition}",
                output.broker(each.leader),
                output.numbers(each.isr),
                output.numbers(each.adding),
                output.numbers(each.removing),
                each.waits_for,
            )
            for each in running.items
        ]
        output.print_lines(output.table(_RUNNING, rows))


def _none_running(running: ReassignmentList) -> str:
    """That nothing moves, and what was moved last."""
    line = "No partition is being moved"
    if not running.completed:
        return f"{line}."
    last = [f"{each.topic}-{each.partition}" for each in running.last_completed[:LAST_NAMED_MAX]]
    more = f" and {running.completed - len(last):,} more" if running.completed > len(last) else ""
    moment = output.moment(running.last_completed[0].completed_ms)
    return f"{line}; {output.count(running.completed, 'move')} complete, the last at {moment}: {', '.join(last)}{more}."


@reassign.command(short_help="Say whether a reassignment is complete.")
@click.option("-p", "--partition", "named", multiple=True, metavar="T-P:ID,ID", help="This one; may be repeated.")
@click.option("-f", "--file", "file", metavar="FILE", help="The file that was applied; -: stdin.")
@options
def verify(settings: Settings, *, named: tuple[str, ...], file: str | None) -> None:
    """Say of each partition whether it is where it should be. Exit code 0 if all are, 1 if not."""
    form = settings.form()
    if bool(named) == (file is not None):
        raise click.UsageError("say what went where: exactly one of -p T-P:ID,ID ... and -f FILE")
    targets = [parsed_target(text) for text in named] if file is None else targets_of(read(file, Targets))
    found = standings(settings.api, targets)
    if form == "json":
        output.print_json(found)
    elif form == "jsonl":
        output.print_jsonl(found)
    elif found:
        output.print_lines(output.table(_STANDING, [_standing(each) for each in found]))
    complete = sum(each.state == "complete" for each in found)
    settings.note(f"{complete:,} of {output.count(len(found), 'partition')} complete.")
    if complete < len(found):
        click.get_current_context().exit(Exit.FAILED)


def _standing(each: Standing) -> tuple[Cell, ...]:
    colour = {"complete": GOOD, "moving": WARN}.get(each.state, BAD)
    text = {"complete": "complete", "moving": "still moving", "elsewhere": "not moving, and elsewhere"}.get(
        each.state, "there is no such partition"
    )
    return (
        f"{each.topic}-{each.partition}",
        output.numbers(each.wanted),
        output.numbers(each.replicas),
        (text, colour),
    )


def _carry_out(settings: Settings, targets: list[ReassignmentTarget], *, dry_run: bool, yes: bool, reason: str) -> None:
    form = settings.form()
    asked = ReassignmentRequest(partitions=targets, dry_run=dry_run, reason=reason)
    if not dry_run and not yes:
        _confirm(settings, asked)
    answer = settings.api.post("/v1/reassignments", asked, ReassignmentAnswer)
    if form == "json":
        output.print_json(answer)
    elif form == "jsonl":
        output.print_jsonl(answer.results)
    else:
        output.print_lines(_results(answer))
        failed = sum(each.outcome == "failed" for each in answer.results)
        said = f"{len(answer.results) - failed:,} {'would begin' if dry_run else 'begun'}, {failed:,} failed."
        settings.note(said + (" Nothing was changed." if dry_run else ""))
    if any(each.outcome == "failed" for each in answer.results):
        click.get_current_context().exit(Exit.FAILED)


def _confirm(settings: Settings, asked: ReassignmentRequest) -> None:
    """Show what would be, and ask.

    Raises:
        Failure: PRECONDITION; the answer was no, or there is nobody to be asked.
    """
    require_terminal()
    preview = settings.api.post("/v1/reassignments", msgspec.structs.replace(asked, dry_run=True), ReassignmentAnswer)
    for line in _results(preview):
        click.echo(line, err=True)
    confirm("Go on?")


def _results(answer: ReassignmentAnswer) -> list[str]:
    rows: list[tuple[Cell, ...]] = []
    for each in answer.results:
        effect: Cell = (("would begin" if answer.dry_run else "begun"), GOOD)
        if each.outcome == "failed":
            effect = (f"failed: {each.message} ({each.error_name})", BAD)
        rows.append(
            (
                f"{each.topic}-{each.partition}",
                output.numbers(each.replicas),
                output.numbers(each.adding),
                output.numbers(each.removing),
                effect,
            )
        )
    return output.table(_RESULT, rows)
