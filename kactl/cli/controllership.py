"""`kactl controller history|queue|resign`: the controllership of a running instance."""

from typing import Final

import click

from kactl.admin.schema import ControllerInfo, EventTally, QueueInfo, Resignation, Resigned, TermInfo, TermList

from . import output
from .client import confirm
from .exits import Exit, Failure
from .output import GOOD, NONE, PLAIN, WARN, Cell
from .settings import Settings, options, reason_option

_TERMS: Final = ("EPOCH", "CONTROLLER", "FROM", "TO", "CAUSE")
_KINDS: Final = ("EVENT", "HANDLED", "FAILED", "PREEMPTED", "WAIT P50", "WAIT P99", "TAKES P50", "TAKES P99", "MAX")


@click.command()
@options
def history(settings: Settings) -> None:
    """Who has been the controller, as far as the server has seen it; the oldest first."""
    form = settings.form()
    found = settings.api.get("/v1/controller/history", TermList)
    if form == "json":
        output.print_json(found)
    elif form == "jsonl":
        output.print_jsonl(found.items)
    else:
        output.print_lines(output.table(_TERMS, [_term(each) for each in found.items]))


@click.command()
@click.option("--limit", type=click.IntRange(0, 1000), default=20, show_default=True, help="How many events to name.")
@options
def queue(settings: Settings, *, limit: int) -> None:
    """What waits for the controller, what it has in hand, and how long each kind of event has taken."""
    form = settings.form()
    found = settings.api.get("/v1/controller/queue", QueueInfo, {"limit": limit})
    if form == "json":
        output.print_json(found)
        return
    if form == "jsonl":
        output.print_jsonl([found])
        return
    in_hand = NONE
    if found.current is not None:
        between = f", in between {found.current.between}" if found.current.between else ""
        in_hand = f"{found.current.label}, for {_ms(found.current.for_ms)}{between}"
    values: list[tuple[str, Cell]] = [
        ("in hand", in_hand),
        ("waiting", (str(found.depth), WARN if found.depth else PLAIN)),
        ("oldest", _ms(found.oldest_ms)),
        ("refused", (str(found.refused), WARN if found.refused else PLAIN)),
    ]
    output.print_lines(output.pairs(values))
    for at, each in enumerate(found.next):
        output.print_lines([f"  {at + 1}. {each.label}, for {_ms(each.waited_ms)}{' (asked)' if each.asked else ''}"])
    output.print_lines(["", *output.table(_KINDS, [_kind(each) for each in found.kinds])])


@click.command()
@click.option("--epoch", type=int, metavar="N", help="Only if it is held under this epoch.  [the present one]")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@reason_option
@options
def resign(settings: Settings, *, epoch: int | None, yes: bool, reason: str) -> None:
    """Give the controllership up; another instance, or the same, takes over under a higher epoch."""
    form = settings.form()
    info = settings.api.get("/v1/controller", ControllerInfo)
    if not info.is_active:
        raise Failure(f"{settings.server} is not the controller, which is {info.active_id}", Exit.PRECONDITION)
    if not yes:
        confirm(f"Let controller {info.node_id} give up epoch {info.epoch}?")
    asked = Resignation(expected_epoch=info.epoch if epoch is None else epoch, reason=reason)
    answer = settings.api.post("/v1/controller/resign", asked, Resigned)
    if form == "json":
        output.print_json(answer)
    elif form == "jsonl":
        output.print_jsonl([answer])
    else:
        settings.note(f"Controller {info.node_id} has given up epoch {answer.epoch}.")


def _term(each: TermInfo) -> tuple[Cell, ...]:
    who = f"{each.controller_id}{'*' if each.ours else ''}"
    until = output.moment(each.ended_ms) if each.ended_ms is not None else ("now", GOOD)
    return each.epoch, who, output.moment(each.began_ms), until, each.cause


def _kind(each: EventTally) -> tuple[Cell, ...]:
    failed: Cell = (str(each.failed), WARN) if each.failed else "0"
    return (
        each.label,
        each.handled,
        failed,
        each.preempted,
        _ms(each.wait.p50_ms),
        _ms(each.wait.p99_ms),
        _ms(each.process.p50_ms),
        _ms(each.process.p99_ms),
        _ms(each.process.max_ms),
    )


def _ms(duration_ms: float) -> str:
    return f"{duration_ms:,.1f}ms"
