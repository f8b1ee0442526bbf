"""`kactl controller`: run the controller of a cluster of real brokers, or inspect a running one."""

from typing import TYPE_CHECKING, Final

import click

from kactl.admin.schema import (
    ControllerInfo,
    EventTally,
    QueueInfo,
    Release,
    Released,
    Resignation,
    Resigned,
    TermInfo,
    TermList,
)

from . import output
from .api_client import confirm
from .common_options import (
    Settings,
    dry_run_option,
    never_asks,
    options,
    own_reason_option,
    reason_option,
    with_options,
    yes_option,
)
from .config import FILE_DEFAULT
from .exits import Exit, Failure
from .moments import UNTIL
from .output import GOOD, NONE, PLAIN, WARN, Cell
from .up import LOG_LEVELS

if TYPE_CHECKING:
    from .setup import Stop

_TERMS: Final = ("EPOCH", "CONTROLLER", "FROM", "TO", "CAUSE")
_KINDS: Final = ("EVENT", "HANDLED", "FAILED", "PREEMPTED", "WAIT P50", "WAIT P99", "TAKES P50", "TAKES P99", "MAX")


@click.group(invoke_without_command=True, short_help="Run the controller of real Kafka brokers, or inspect one.")
@click.option("--config", "file", metavar="FILE", default=FILE_DEFAULT, show_default=True, help="Configuration file.")
@click.option("--takeover", is_flag=True, help="Take over from the active controller.")
@click.option(
    "--log-level", type=LOG_LEVELS, default="info", show_default=True, help="Level of log messages on stderr."
)
@click.option("--uvloop/--no-uvloop", default=True, help="Use uvloop if it is installed.  [yes]")
@with_options((), server=False)
def controller(settings: Settings, *, file: str, takeover: bool, log_level: str, uvloop: bool) -> None:
    """Run a controller over ZooKeeper, for unmodified Kafka brokers, until Ctrl-C.

    It takes part in controller elections as every broker does, and is a standby while another instance is the
    controller. `--takeover` does not wait for its failure. The commands below inspect a running controller.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    from . import setup
    from .serving import over_zookeeper

    config = setup.read_config(file, {"controller.takeover": True} if takeover else {})
    if config.store.kind != "zookeeper":
        raise Failure(
            f"{file}: store.kind: real brokers store their cluster in ZooKeeper, not in {config.store.kind}: "
            'write kind = "zookeeper" and connect = "host:2181/chroot", or run `kactl up`',
            Exit.USAGE,
        )
    setup.log_to_stderr("debug" if settings.verbose else log_level)

    async def serve(stop: "Stop") -> None:
        async with over_zookeeper(config) as server:
            stop.started = True
            settings.note(f"controller {config.node_id} serves its API at {server.address.url}; Ctrl-C stops it")
            await stop.wait()
            settings.note("stopping: resigning as controller ...")

    setup.check_exposure(config, file)
    setup.check_free(config)
    setup.run(serve, uvloop=uvloop)


@controller.command()
@options
def history(settings: Settings) -> None:
    """Show the controllers that the server has observed, oldest first."""
    response = settings.api.get("/v1/controller/history", TermList)
    if not settings.printed(response, response.items):
        output.print_lines(output.table(_TERMS, [_term(term) for term in response.items]))


@controller.command(short_help="Show the controller's event queue.")
@click.option(
    "--limit",
    type=click.IntRange(0, 1000),
    default=20,
    show_default=True,
    help="Maximum number of waiting events shown.",
)
@options
def queue(settings: Settings, *, limit: int) -> None:
    """Show the controller's event queue: waiting events, current event, durations by kind of event."""
    response = settings.api.get("/v1/controller/queue", QueueInfo, {"limit": limit})
    if settings.printed(response):
        return
    current = NONE
    if response.current is not None:
        between = f", in between {response.current.between}" if response.current.between else ""
        current = f"{response.current.label}, for {_ms(response.current.for_ms)}{between}"
    values: list[tuple[str, Cell]] = [
        ("current", current),
        ("waiting", (str(response.depth), WARN if response.depth else PLAIN)),
        ("oldest", _ms(response.oldest_ms)),
        ("rejected", (str(response.refused), WARN if response.refused else PLAIN)),
    ]
    output.print_lines(output.pairs(values))
    for index, event in enumerate(response.next):
        output.print_lines(
            [f"  {index + 1}. {event.label}, for {_ms(event.waited_ms)}{' (requested)' if event.asked else ''}"]
        )
    output.print_lines(["", *output.table(_KINDS, [_kind(event) for event in response.kinds])])


@controller.command(short_help="Resign as controller.")
@click.option("--epoch", type=int, metavar="N", help="Only if this is the controller epoch.  [the present one]")
@click.option("--hold", is_flag=True, help="Leave the controllership to other instances, until `release`.")
@click.option("--until", type=UNTIL, metavar="TIME", help="End of the hold, as 2h or 2026-11-23T14:05; implies --hold.")
@dry_run_option
@yes_option
@own_reason_option
@options
def resign(
    settings: Settings, *, epoch: int | None, hold: bool, until: int | None, dry_run: bool, yes: bool, reason: str
) -> None:
    """Resign as controller; another instance, or the same, is elected with a higher epoch.

    With `--hold` or `--until`, this instance leaves the controllership to others, also after a restart. It contests
    only after three seconds without a controller. `kactl controller release` ends the hold.
    """
    info = settings.api.get("/v1/controller", ControllerInfo)
    if not info.is_active:
        raise Failure(f"{settings.server} is not the controller; {info.active_id} is", Exit.PRECONDITION)
    if not (yes or dry_run):
        confirm(f"Resign controller {info.node_id} from epoch {info.epoch}?")
    hold = hold or until is not None
    request = Resignation(
        expected_epoch=info.epoch if epoch is None else epoch,
        dry_run=dry_run,
        reason=reason,
        hold=hold,
        until_ms=until,
    )
    answer = settings.api.post("/v1/controller/resign", request, Resigned)
    if not settings.printed(answer):
        did = "could resign from epoch {}. Nothing was changed." if dry_run else "has resigned from epoch {}."
        settings.note(f"Controller {info.node_id} {did.format(answer.epoch)}")
        if hold and not dry_run:
            settings.note(f"It is held. To end the hold: kactl controller release {info.node_id}")


@controller.command(short_help="End the hold of an instance that has resigned.")
@click.argument("controller_id", type=int, metavar="ID")
@dry_run_option
@never_asks
@reason_option
@options
def release(settings: Settings, *, controller_id: int, dry_run: bool, reason: str) -> None:
    """End the hold of an instance that resigned with `--hold`: it contests like all others again.

    The controllership stays where it is. The command is sent to the active instance.
    """
    form = settings.form()
    request = Release(controller_id=controller_id, dry_run=dry_run, reason=reason)
    answer = settings.api.post("/v1/controller/release", request, Released)
    if form in output.DATA:
        output.print_data(form, answer)
    elif not answer.changed:
        settings.note(f"Instance {controller_id} is not held. Nothing was changed.")
    else:
        did = "could contest again. Nothing was changed." if dry_run else "contests again."
        settings.note(f"Instance {controller_id} {did}")


def _term(term: TermInfo) -> tuple[Cell, ...]:
    name = f"{term.controller_id}{'*' if term.ours else ''}"
    until = output.moment(term.ended_ms) if term.ended_ms is not None else ("now", GOOD)
    return term.epoch, name, output.moment(term.began_ms), until, term.cause


def _kind(event: EventTally) -> tuple[Cell, ...]:
    failed: Cell = (str(event.failed), WARN) if event.failed else "0"
    return (
        event.label,
        event.handled,
        failed,
        event.preempted,
        _ms(event.wait.p50_ms),
        _ms(event.wait.p99_ms),
        _ms(event.process.p50_ms),
        _ms(event.process.p99_ms),
        _ms(event.process.max_ms),
    )


def _ms(duration_ms: float) -> str:
    return f"{duration_ms:,.1f}ms"
