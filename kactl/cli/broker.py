"""`kactl broker`: drain brokers; kill and restart the participants of `kactl up`."""

import click

from kactl.admin.schema import BrokerActed, BrokerAction, BrokerDrain, BrokerDrained

from . import output
from .client import quoted
from .exits import Exit
from .settings import Settings, options


@click.group()
def broker() -> None:
    """Drain brokers; kill and restart those of `kactl up`."""


@broker.command(short_help="Let a broker end without a word.")
@click.argument("broker_id", type=int, metavar="ID")
@options
def kill(settings: Settings, *, broker_id: int) -> None:
    """Let a broker end without a word, as a process that is killed.

    It counts as alive until its session expires; then others lead what it led.
    """
    _do(settings, broker_id, "kill", f"Killed broker {broker_id}; the controller notices when its session expires.")


@broker.command(short_help="Start a broker again.")
@click.argument("broker_id", type=int, metavar="ID")
@options
def restart(settings: Settings, *, broker_id: int) -> None:
    """Start a broker again, with a higher broker epoch; if it runs, it is stopped before."""
    _do(settings, broker_id, "restart", f"Restarted broker {broker_id}.")


@broker.command(short_help="Lead a broker's partitions elsewhere.")
@click.argument("broker_id", type=int, metavar="ID")
@click.option("--undo", is_flag=True, help="It is not stopped after all: let it lead and follow again.")
@click.option("--dry-run", is_flag=True, help="Say what it would still lead, and change nothing.")
@click.option("--reason", metavar="TEXT", default="", help="Why; kept in the log of the server.")
@options
def drain(settings: Settings, *, broker_id: int, undo: bool, dry_run: bool, reason: str) -> None:
    """Lead a broker's partitions elsewhere, as it asks for itself before it stops in order.

    It is given no leadership until it has registered anew, or `--undo`. What only it holds stays with it, and is
    listed; exit code 1 then.
    """
    form = settings.only("table", "json", "jsonl")
    asked = BrokerDrain(undo=undo, dry_run=dry_run, reason=reason)
    answer = settings.api.post(f"/v1/brokers/{quoted(broker_id)}/drain", asked, BrokerDrained)
    if form == "json":
        output.print_json(answer)
    elif form == "jsonl":
        output.print_jsonl([answer])
    else:
        output.print_lines(f"{each.topic}-{each.partition}" for each in answer.remaining)
        settings.note(_drained(answer))
    if answer.remaining:
        click.get_current_context().exit(Exit.FAILED)


def _drained(answer: BrokerDrained) -> str:
    unchanged = " Nothing was changed." if answer.dry_run else ""
    if answer.undo:
        return f"Broker {answer.broker} {'could lead' if answer.dry_run else 'may lead'} and follow again.{unchanged}"
    if answer.remaining:
        remaining = output.count(len(answer.remaining), "partition")
        return (
            f"Broker {answer.broker} {'would still lead' if answer.dry_run else 'still leads'} {remaining}.{unchanged}"
        )
    return f"Broker {answer.broker} {'would lead' if answer.dry_run else 'leads'} nothing any more.{unchanged}"


def _do(settings: Settings, broker_id: int, action: str, done: str) -> None:
    form = settings.only("table", "json", "jsonl")
    answer = settings.api.post(f"/v1/brokers/{quoted(broker_id)}/{action}", BrokerAction(), BrokerActed)
    if form == "json":
        output.print_json(answer)
    elif form == "jsonl":
        output.print_jsonl([answer])
    else:
        settings.note(done)
