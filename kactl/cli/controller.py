"""`kactl controller`: run the controller of a cluster of real brokers, or look at one that runs."""

from typing import TYPE_CHECKING

import click

from .config import FILE_DEFAULT
from .controllership import history, queue, resign
from .exits import Exit, Failure
from .settings import Settings, with_options
from .up import LOG_LEVELS

if TYPE_CHECKING:
    from .setup import Stop


@click.group(invoke_without_command=True, short_help="Run the controller of real Kafka brokers, or look at one.")
@click.option("--config", "file", metavar="FILE", default=FILE_DEFAULT, show_default=True, help="The configuration.")
@click.option("--takeover", is_flag=True, help="Take the controllership from whoever holds it.")
@click.option("--log-level", type=LOG_LEVELS, default="info", show_default=True, help="What to log to stderr.")
@click.option("--uvloop/--no-uvloop", default=True, help="Use uvloop where it is installed.  [yes]")
@with_options((), server=False)
def controller(settings: Settings, *, file: str, takeover: bool, log_level: str, uvloop: bool) -> None:
    """Run a controller over ZooKeeper, for unmodified Kafka brokers, until Ctrl-C.

    It contests for the controllership as every broker does, and stands by while somebody else has it. `--takeover`
    does not wait for that. The commands below look at a controller that runs, of any kind.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    from . import setup
    from .serving import over_zookeeper

    config = setup.read_config(file, {"controller.takeover": True} if takeover else {})
    if config.store.kind != "zookeeper":
        raise Failure(
            f"{file}: store.kind: real brokers keep their cluster in ZooKeeper, not in {config.store.kind}: "
            'write kind = "zookeeper" and connect = "host:2181/chroot", or run `kactl up`',
            Exit.USAGE,
        )
    setup.log_to_stderr("debug" if settings.verbose else log_level)

    async def serve(stop: "Stop") -> None:
        async with over_zookeeper(config) as server:
            stop.started = True
            settings.note(f"controller {config.node_id} serves its API at {server.address.url}; Ctrl-C stops it")
            await stop.asked()
            settings.note("stopping: the controllership is given up ...")

    setup.check_listen(config.api.address)
    setup.run(serve, uvloop=uvloop)


for command in (history, queue, resign):
    controller.add_command(command)
