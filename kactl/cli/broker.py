"""`kactl broker`: drain brokers; kill and restart the participants of `kactl up`."""

from typing import Final

import click
import msgspec

from kactl.admin.schema import BrokerActed, BrokerAction, BrokerDrain, BrokerDrained, DrainEffect, SomePartitions

from . import output
from .client import confirm, quoted
from .exits import Exit
from .settings import Settings, options, reason_option

# Names in a sentence; all of them are in `-o json`, up to the API's own limit.
NAMED_MAX: Final = 5


@click.group()
def broker() -> None:
    """Drain brokers; kill and restart those of `kactl up`."""


@broker.command(short_help="Let a broker end without a word.")
@click.argument("broker_id", type=int, metavar="ID")
@reason_option
@options
def kill(settings: Settings, *, broker_id: int, reason: str) -> None:
    """Let a broker end without a word, as a process that is killed.

    It counts as alive until its session expires; then others lead what it led.
    """
    _do(
        settings,
        broker_id,
        "kill",
        f"Killed broker {broker_id}; the controller notices when its session expires.",
        reason,
    )


@broker.command(short_help="Start a broker again.")
@click.argument("broker_id", type=int, metavar="ID")
@reason_option
@options
def restart(settings: Settings, *, broker_id: int, reason: str) -> None:
    """Start a broker again, with a higher broker epoch; if it runs, it is stopped before."""
    _do(settings, broker_id, "restart", f"Restarted broker {broker_id}.", reason)


@broker.command(short_help="Lead a broker's partitions elsewhere.")
@click.argument("broker_id", type=int, metavar="ID")
@click.option("--undo", is_flag=True, help="It is not stopped after all: let it lead and follow again.")
@click.option("--dry-run", is_flag=True, help="Show what would happen to its partitions, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@reason_option
@options
def drain(settings: Settings, *, broker_id: int, undo: bool, dry_run: bool, yes: bool, reason: str) -> None:
    """Lead a broker's partitions elsewhere, as it asks for itself before it stops in order.

    The broker also leaves every ISR, and returns to neither until it has registered anew, or `--undo`. Confirmation is
    needed where partitions would fall below min.insync.replicas. Partitions of which no other replica is in sync stay
    with it, and are listed; exit code 1 then.
    """
    form = settings.form()
    path = f"/v1/brokers/{quoted(broker_id)}/drain"
    asked = BrokerDrain(undo=undo, dry_run=dry_run, reason=reason)
    if not (undo or dry_run or yes):
        _confirm(settings, path, asked)
    answer = settings.api.post(path, asked, BrokerDrained)
    if form == "json":
        output.print_json(answer)
    elif form == "jsonl":
        output.print_jsonl([answer])
    else:
        output.print_lines(f"{each.topic}-{each.partition}" for each in answer.remaining)
        for line in _drained(answer):
            settings.note(line)
    if answer.remaining:
        click.get_current_context().exit(Exit.FAILED)


def _confirm(settings: Settings, path: str, asked: BrokerDrain) -> None:
    """Ask before partitions begin to reject writes.

    Raises:
        Failure: PRECONDITION; the answer was no, or there is no terminal to ask on.
    """
    preview = settings.api.post(path, msgspec.structs.replace(asked, dry_run=True), BrokerDrained)
    if preview.effect is None or not preview.effect.under_min_isr.count:
        return
    for line in _drained(preview)[:-1]:
        click.echo(line, err=True)
    confirm("Go on?")


def _drained(answer: BrokerDrained) -> list[str]:
    """What draining did, or would do: leadership, ISRs, and what is left to lose."""
    id_, tried, effect = answer.broker, answer.dry_run, answer.effect
    if effect is None:
        lines = [f"Broker {id_} {'could lead' if tried else 'may lead'} and follow again."]
    else:
        lines = [_leads(answer, effect), *_isr(effect, id_, tried=tried)]
        if not tried:
            lines.append(f"To take it back: kactl broker drain --undo {id_}")
    return [*lines, "Nothing was changed."] if tried else lines


def _leads(answer: BrokerDrained, effect: DrainEffect) -> str:
    stays = len(answer.remaining) + effect.alone.count
    would, moved = answer.dry_run, effect.moved.count
    if stays:
        line = f"Broker {answer.broker} {'would still lead' if would else 'still leads'} {_partitions(stays)}"
    else:
        line = f"Broker {answer.broker} {'would lead' if would else 'leads'} nothing any more"
    if moved:
        line += f"; {_partitions(moved)} {'would move' if would else 'moved'} to other leaders"
    if effect.alone.count:
        line += f"; of {_partitions(effect.alone.count)} it holds the only replica: {_names(effect.alone)}"
    return line + "."


def _isr(effect: DrainEffect, broker: int, *, tried: bool) -> list[str]:
    lines = []
    if effect.left_isr.count:
        left = "would leave" if tried else "left"
        lines.append(f"It {left} the ISR of {_partitions(effect.left_isr.count)}.")
    if effect.under_min_isr.count:
        falls = "would be" if tried else "is" if effect.under_min_isr.count == 1 else "are"
        lines.append(
            f"WARNING: {_partitions(effect.under_min_isr.count)} {falls} under min.insync.replicas, so acks=all"
            f" is rejected: {_names(effect.under_min_isr)}"
        )
    if effect.last_in_sync.count:
        keeps = "would have" if tried else "has" if effect.last_in_sync.count == 1 else "have"
        lines.append(
            f"WARNING: {_partitions(effect.last_in_sync.count)} {keeps} one replica in sync, and no spare for the next"
            f" failure: {_names(effect.last_in_sync)}"
        )
    return lines


def _partitions(count: int) -> str:
    return output.count(count, "partition")


def _names(some: SomePartitions) -> str:
    shown = [f"{each.topic}-{each.partition}" for each in some.first[:NAMED_MAX]]
    more = some.count - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _do(settings: Settings, broker_id: int, action: str, done: str, reason: str) -> None:
    form = settings.form()
    answer = settings.api.post(f"/v1/brokers/{quoted(broker_id)}/{action}", BrokerAction(reason=reason), BrokerActed)
    if form == "json":
        output.print_json(answer)
    elif form == "jsonl":
        output.print_jsonl([answer])
    else:
        settings.note(done)
