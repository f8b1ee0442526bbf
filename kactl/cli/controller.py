"""`kactl controller`: run the controller of a cluster of real brokers, or inspect a running one."""

from typing import TYPE_CHECKING

import click

from .common_options import Settings, with_options
from .config import FILE_DEFAULT
from .controllership import history, queue, resign
from .exits import Exit, Failure
from .up import LOG_LEVELS

if TYPE_CHECKING:
    from .setup import Stop


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
            await stop.asked()
            settings.note("stopping: resigning as controller ...")

    setup.check_listen(config.api.address)
    setup.run(serve, uvloop=uvloop)


for command in (history, queue, resign):
    controller.add_command(command)
