"""`kactl up`: a cluster in one process."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from .common_options import Settings, command_for, with_options
from .exits import Exit, Failure
from .output import count

if TYPE_CHECKING:
    from kactl.actors.system import Controller
    from kactl.admin.identity.places import Places
    from kactl.config.settings import Config

    from .serving import Server
    from .setup import Stop

DATA_DIR: Final = ".kactl"
STORE_FILE: Final = "kactl.db"
# Beside the store: what `kactl up` shows of earlier runs is read from the state-change log. 64 MiB hold some 200,000
# events, more than are read back; the log of a server is larger.
LOG_FOLDER: Final = "log"
# Tokens of the cluster.
SECURITY_FOLDER: Final = "security"
LOG_SEGMENT_BYTES: Final = 16 << 20
LOG_SEGMENTS: Final = 4
# The participants have the ids from 1 on.
NODE_ID: Final = 0

# Stores of `kactl up`. Real brokers keep their cluster in ZooKeeper.
STORES: Final = ("sqlite", "etcd")
LOG_LEVELS: Final = click.Choice(["debug", "info", "warning", "error"])


@click.command(short_help="Run a cluster in one process.")
@click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", help=f"Data folder.  [{DATA_DIR}]")
@click.option("--participants", type=click.IntRange(0, 1000), metavar="N", help="Number of brokers.  [3]")
@click.option("--listen", metavar="HOST:PORT", help="Address of the API.  [127.0.0.1:8080]")
@click.option("--config", "file", metavar="FILE", help="Configuration file; options take precedence.")
@click.option("--demo", is_flag=True, help="Create a topic, kill a broker, and show how leaders move.")
@click.option(
    "--log-level", type=LOG_LEVELS, default="error", show_default=True, help="Level of log messages on stderr."
)
@click.option("--uvloop/--no-uvloop", default=True, help="Use uvloop if it is installed.  [yes]")
@with_options((), server=False)
def up(
    settings: Settings,
    *,
    data_dir: Path | None,
    participants: int | None,
    listen: str | None,
    file: str | None,
    demo: bool,
    log_level: str,
    uvloop: bool,
) -> None:
    """Run a cluster in one process: store, brokers, controller and admin API.

    The state is kept in the data folder. After Ctrl-C or a kill, the next start continues with the same cluster.
    """
    from . import setup
    from .demo import check_demo, run_demo
    from .serving import embedded
    from .stores import describe_store

    overrides: dict[str, object] = {"participants.count": participants, "api.listen": listen}
    if data_dir is not None:
        overrides["store.path"] = str(data_dir / STORE_FILE)
    config = read_config(file, overrides)
    source = file or "configuration"
    if config.store.kind not in STORES:
        raise Failure(
            f"{source}: store.kind: `kactl up` stores its cluster in SQLite or etcd, not in {config.store.kind}: "
            'write kind = "sqlite", or run `kactl controller` for real brokers',
            Exit.USAGE,
        )
    if 1 <= config.node_id <= config.participants.count:
        raise Failure(
            f"{source}: node-id: {config.node_id} is the id of one of the {config.participants.count} participants: "
            "choose 0, or a number above them",
            Exit.USAGE,
        )
    if demo:
        check_demo(config)
    setup.log_to_stderr("debug" if settings.verbose else log_level)

    async def serve(stop: "Stop") -> None:
        async with embedded(config, note=settings.note, holder=holder) as server:
            stop.started = True
            _introduce(config, server)
            if demo:
                await run_demo(server, stop, session_timeout_ms=config.store.session_timeout)
            else:
                await stop.wait()
            click.echo("Stopping: the controller resigns, then the brokers stop ...")

    setup.check_exposure(config, file)
    store = Path(config.store.path)
    with setup.held(store.parent, url=f"http://{config.api.listen}") as holder:
        setup.check_free(config, "--listen" if file is None or listen is not None else "api.listen")
        setup.run(serve, uvloop=uvloop)
    click.echo(f"Stopped. The cluster is stored in {describe_store(config)}.")


def read_config(file: str | None, overrides: Mapping[str, object]) -> "Config":
    """Returns the configuration of `kactl up`: its own defaults, overridden by the file if there is one.

    Raises:
        Failure: USAGE; see `kactl.cli.setup.read_config`.
    """
    from . import setup

    defaults: dict[str, object] = {
        "node-id": NODE_ID,
        "store.path": str(_default_path(file)),
        "log.segment-bytes": LOG_SEGMENT_BYTES,
        "log.segments": LOG_SEGMENTS,
    }
    path = Path(setup.read_config(file, overrides, defaults).store.path)
    beside = {"log.folder": path.parent / LOG_FOLDER, "security.folder": path.parent / SECURITY_FOLDER}
    return setup.read_config(file, overrides, {**defaults, **{key: str(folder) for key, folder in beside.items()}})


def served_config(file: str) -> "Config":
    """Returns the configuration of the server that a file is for, with the defaults of its command: `kactl controller`
    over ZooKeeper, and `kactl up` otherwise.

    Raises:
        Failure: USAGE; see `kactl.cli.setup.read_config`.
    """
    from . import setup

    config = read_config(file, {})
    return config if config.store.kind in STORES else setup.read_config(file)


def _default_path(file: str | None) -> Path:
    """Returns the default path of the store.

    Earlier versions kept it in the working directory if there was a file; an existing one is still used.
    """
    path, earlier = Path(DATA_DIR) / STORE_FILE, Path(STORE_FILE)
    return earlier if file is not None and earlier.exists() and not path.exists() else path


def _authorization(places: "Places") -> str:
    """Returns the header that other programs of this user send, for a shell."""
    token = f"$(cat {shlex.quote(str(places.local))})" if places.local is not None else "TOKEN"
    return f'"Authorization: Bearer {token}"'


def _network_lines(controller: "Controller") -> list[str]:
    """Returns where participants of other programs connect; nothing if they cannot."""
    address, insecure = (getattr(controller.network, name, None) for name in ("address", "insecure"))
    if address is None:
        return []
    return [
        f"  network  {address}  (participants of other programs connect here)",
        *([f"           {click.style('insecure', bold=True)}: {insecure}"] if insecure else []),
    ]


def _introduce(config: "Config", server: "Server") -> None:
    """Print a summary of the cluster, and example commands."""
    from kactl.admin.identity.places import places_of

    from .stores import describe_store

    controller, members, address = server
    assert members is not None
    now = controller.snapshot()
    url = address.url
    command = command_for(url)
    brokers = f"brokers {members.ids[0]} to {members.ids[-1]}" if members.ids else "no brokers"
    create = f"topic create clicks --partitions 6 --replication-factor {min(3, len(members))}"
    state = f"{count(now.topics, 'topic')}, {count(now.partitions, 'partition')}"
    lines = [
        f"{click.style('kactl is up', bold=True)}: controller {config.node_id} under epoch {now.epoch}, {brokers}",
        f"  store    {describe_store(config)}  ({state})",
        f"  history  {config.log.folder or 'this run only, because log.folder is empty'}",
        f"  timeout  {config.store.session_timeout / 1000:g} s until a killed broker counts as dead",
        f"  API at   {url}  (dashboard: /, description: /openapi.json, metrics: /metrics)",
        *_network_lines(controller),
        "",
        "From another terminal:",
        *([f"  {command} {create}"] if members.ids else []),
        f"  {command} get partitions",
        f"  {command} watch",
        *([f"  {command} broker kill {members.ids[0]}"] if members.ids else [f"  {command} get brokers"]),
        f"  curl -s -H {_authorization(places_of(config))} {url}/v1/controller",
        "",
        "Ctrl-C stops it; the cluster is preserved.",
    ]
    click.echo("\n".join(lines))
