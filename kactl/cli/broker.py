"""`kactl broker`: kill and restart the participants of `kactl up`."""

import click

from kactl.admin.schema import BrokerActed, BrokerAction

from . import output
from .client import quoted
from .settings import Settings, options


@click.group()
def broker() -> None:
    """Kill and restart brokers of `kactl up`."""


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


def _do(settings: Settings, broker_id: int, action: str, done: str) -> None:
    form = settings.only("table", "json", "jsonl")
    answer = settings.api.post(f"/v1/brokers/{quoted(broker_id)}/{action}", BrokerAction(), BrokerActed)
    if form == "json":
        output.print_json(answer)
    elif form == "jsonl":
        output.print_jsonl([answer])
    else:
        settings.note(done)
