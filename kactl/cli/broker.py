"""`kactl broker`: drain brokers; kill and restart the participants of `kactl up`."""

import time
from typing import Final

import click
import msgspec

from kactl.admin.schema import (
    BrokerActed,
    BrokerAction,
    BrokerDrain,
    BrokerDrained,
    DrainEffect,
    SomePartitions,
    Stoppable,
)

from . import output
from .api_client import confirm, quoted
from .common_options import Settings, dry_run_option, never_asks, options, own_reason_option, reason_option
from .exits import Exit
from .get import drain_text
from .moments import UNTIL

# Interval between the questions of `stoppable --wait`.
WAIT_INTERVAL_S: Final = 1.0
# Names in one line; `-o json` has all of them, up to the API's limit.
NAMED_MAX: Final = 5


@click.group()
def broker() -> None:
    """Drain brokers; kill and restart those of `kactl up`."""


@broker.command(short_help="Kill a broker without a clean shutdown.")
@click.argument("broker_id", type=int, metavar="ID")
@dry_run_option
@never_asks
@own_reason_option
@options
def kill(settings: Settings, *, broker_id: int, dry_run: bool, reason: str) -> None:
    """Kill a broker without a clean shutdown, as SIGKILL does.

    It counts as alive until its session expires. New leaders are then elected for its partitions.
    """
    _do(
        settings,
        broker_id,
        "kill",
        f"Killed broker {broker_id}; the controller notices when its session expires.",
        BrokerAction(dry_run=dry_run, reason=reason),
    )


@broker.command(short_help="Restart a broker.")
@click.argument("broker_id", type=int, metavar="ID")
@dry_run_option
@never_asks
@reason_option
@options
def restart(settings: Settings, *, broker_id: int, dry_run: bool, reason: str) -> None:
    """Restart a broker, with a higher broker epoch. If it is running, it is stopped first."""
    request = BrokerAction(dry_run=dry_run, reason=reason)
    _do(settings, broker_id, "restart", f"Restarted broker {broker_id}.", request)


@broker.command(short_help="Move leadership away from a broker.")
@click.argument("broker_id", type=int, metavar="ID")
@click.option("--undo", is_flag=True, help="Allow the broker to lead and follow again.")
@click.option("--until", type=UNTIL, metavar="TIME", help="End it by itself: 90m, 2h, or 2026-11-23T14:05:00.")
@click.option("--until-restart", is_flag=True, help="End it when the broker has registered anew.")
@click.option("--dry-run", is_flag=True, help="Show the effect on its partitions; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@reason_option
@options
def drain(
    settings: Settings,
    *,
    broker_id: int,
    undo: bool,
    until: int | None,
    until_restart: bool,
    dry_run: bool,
    yes: bool,
    reason: str,
) -> None:
    """Move leadership away from a broker, as in a controlled shutdown.

    The broker also leaves every ISR that has other members. The drain is stored: it outlives controllers, and restarts
    of the broker, until `--undo`, or as `--until` and `--until-restart` say. A second drain replaces the first.
    Confirmation is required if partitions would fall below min.insync.replicas. Partitions without another in-sync
    replica stay with the broker and are listed; the exit code is then 1.
    """
    path = f"/v1/brokers/{quoted(broker_id)}/drain"
    if undo and (until is not None or until_restart):
        raise click.UsageError("--undo ends a drain now: leave --until and --until-restart away")
    request = BrokerDrain(undo=undo, dry_run=dry_run, reason=reason, until_ms=until, until_restart=until_restart)
    if not (undo or dry_run or yes):
        _confirm(settings, path, request)
    answer = settings.api.post(path, request, BrokerDrained)
    if not settings.printed(answer):
        output.print_lines(f"{name.topic}-{name.partition}" for name in answer.remaining)
        for line in _drained(answer):
            settings.note(line)
    if answer.remaining:
        click.get_current_context().exit(Exit.FAILED)


@broker.command(short_help="Report whether a broker can stop without harm.")
@click.argument("broker_id", type=int, metavar="ID")
@click.option("--wait", is_flag=True, help="Repeat until it can stop, at most for --timeout.")
@options
def stoppable(settings: Settings, *, broker_id: int, wait: bool) -> None:
    """Report whether a broker can stop now without harm; the exit code is 0 if it can, and 1 if not.

    It can if no partition would lose its leader or records, or fall below min.insync.replicas. A rolling restart calls
    this before each broker; with `--wait` it continues when the previous one is back in its ISRs:

    \b
      kactl broker stoppable 3 --wait --timeout 600 && ssh broker-3 systemctl restart kafka
    """
    path = f"/v1/brokers/{quoted(broker_id)}/stoppable"
    deadline = time.monotonic() + settings.timeout_s
    answer = settings.api.get(path, Stoppable)
    while wait and not answer.stoppable and time.monotonic() + WAIT_INTERVAL_S < deadline:
        time.sleep(WAIT_INTERVAL_S)
        answer = settings.api.get(path, Stoppable)
    if not settings.printed(answer):
        output.print_lines(_stoppable(answer))
    if not answer.stoppable:
        click.get_current_context().exit(Exit.FAILED)


def _stoppable(answer: Stoppable) -> list[str]:
    can = "can" if answer.stoppable else "cannot"
    blockers = (
        (answer.offline, "would have no leader"),
        (answer.lossy, "would lose records, because unclean elections are allowed"),
        (answer.under_min_isr, "would reject writes with acks=all"),
    )
    lines = [f"{_partitions(some.count)} {text}: {_names(some)}" for some, text in blockers if some.count]
    if answer.unowned.count:
        lines.append(f"{output.count(answer.unowned.count, 'shard')} would have no owner: {_names(answer.unowned)}")
    return [f"Broker {answer.broker} {can} stop now. {output.harmless(answer.explained)}", *lines]


def _confirm(settings: Settings, path: str, request: BrokerDrain) -> None:
    """Ask for confirmation if partitions would reject writes.

    Raises:
        Failure: PRECONDITION; not confirmed, or there is no terminal.
    """
    preview = settings.api.post(path, msgspec.structs.replace(request, dry_run=True), BrokerDrained)
    if preview.effect is None or not preview.effect.under_min_isr.count:
        return
    for line in _drained(preview)[:-1]:
        output.echo(line, err=True)
    confirm("Continue?")


def _drained(answer: BrokerDrained) -> list[str]:
    """Returns the effect of a drain: leadership, ISRs and warnings."""
    id_, preview, effect = answer.broker, answer.dry_run, answer.effect
    if not answer.changed:
        return [f"Broker {id_} is not drained. Nothing was changed."]
    if effect is None:
        lines = [f"Broker {id_} {'could lead' if preview else 'may lead'} and follow again."]
    else:
        lines = [_leads(answer, effect), *_shards(effect, preview=preview), *_isr(effect, id_, preview=preview)]
        if not preview and answer.drain is not None:
            if answer.drain.until_ms is not None or answer.drain.until_restart:
                lines.append(f"It is drained {drain_text(answer.drain)}.")
            lines.append(f"To take it back: kactl broker drain --undo {id_}")
    return [*lines, "Nothing was changed."] if preview else lines


def _leads(answer: BrokerDrained, effect: DrainEffect) -> str:
    stays = len(answer.remaining) - effect.shards_kept.count + effect.alone.count
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


def _shards(effect: DrainEffect, *, preview: bool) -> list[str]:
    lines = []
    if count := effect.shards_moved.count:
        moved = "would be handed over" if preview else "is handed over" if count == 1 else "are handed over"
        lines.append(f"{output.count(count, 'shard')} {moved} to other participants, once these are prepared.")
    if count := effect.shards_kept.count:
        stay = "would stay" if preview else "stays" if count == 1 else "stay"
        shards = f"{output.count(count, 'shard')} {stay} with it, as no other participant can own"
        lines.append(f"{shards} {'it' if count == 1 else 'them'}: {_names(effect.shards_kept)}")
    return lines


def _isr(effect: DrainEffect, broker: int, *, preview: bool) -> list[str]:
    lines = []
    if effect.left_isr.count:
        left = "would leave" if preview else "left"
        lines.append(f"It {left} the ISR of {_partitions(effect.left_isr.count)}.")
    if effect.under_min_isr.count:
        falls = "would be" if preview else "is" if effect.under_min_isr.count == 1 else "are"
        lines.append(
            f"WARNING: {_partitions(effect.under_min_isr.count)} {falls} under min.insync.replicas, so acks=all"
            f" is rejected: {_names(effect.under_min_isr)}"
        )
    if effect.last_in_sync.count:
        keeps = "would have" if preview else "has" if effect.last_in_sync.count == 1 else "have"
        lines.append(
            f"WARNING: {_partitions(effect.last_in_sync.count)} {keeps} one replica in sync, and no spare for the next"
            f" failure: {_names(effect.last_in_sync)}"
        )
    return lines


def _partitions(count: int) -> str:
    return output.count(count, "partition")


def _names(some: SomePartitions) -> str:
    shown = [f"{name.topic}-{name.partition}" for name in some.first[:NAMED_MAX]]
    more = some.count - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _do(settings: Settings, broker_id: int, action: str, done: str, request: BrokerAction) -> None:
    answer = settings.api.post(f"/v1/brokers/{quoted(broker_id)}/{action}", request, BrokerActed)
    if not settings.printed(answer):
        settings.note(f"Broker {broker_id}: {action} is possible. Nothing was changed." if request.dry_run else done)
