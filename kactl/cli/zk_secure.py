"""`kactl zk-secure`: the permissions of a cluster's nodes in ZooKeeper."""

import anyio
import click

from .common_options import Settings, changes_host, with_options
from .exits import Exit, Failure


@click.command("zk-secure", short_help="Protect the nodes of a cluster in ZooKeeper from other clients.")
@click.option("--config", "file", metavar="FILE", required=True, help="Configuration of `kactl controller`.")
@click.option("--apply", is_flag=True, help="Change the permissions. Without it they are only counted.")
@click.option("--open", "opens", is_flag=True, help="Give everybody all rights again, as without zookeeper.set.acl.")
@changes_host
@with_options((), server=False)
def zk_secure(settings: Settings, *, file: str, apply: bool, opens: bool, dry_run: bool) -> None:
    """Protect the nodes of a cluster in ZooKeeper from other clients, as Kafka's zookeeper-security-migration does.

    Nodes then belong to the identity in the configuration, which has to be the brokers'. The order of steps: let
    brokers and kactl log in to ZooKeeper, set zookeeper.set.acl=true on every broker and set-acl in kactl's
    configuration, and restart them; then run this command with --apply. It can be interrupted and run again.
    """
    from kactl.model.errors import KactlError

    from .setup import check_exposure, read_config
    from .stores import zookeeper_permissions

    config = read_config(file)
    if config.store.kind != "zookeeper":
        raise Failure(
            f"{file}: store.kind is {config.store.kind}: only nodes in ZooKeeper have permissions", Exit.USAGE
        )
    check_exposure(config, file)

    applied = apply and not dry_run

    async def run() -> None:
        async with zookeeper_permissions(config.store) as permissions:
            done = await permissions.migrate(secure=not opens, apply=applied)
        kind = "open" if opens else "secure"
        if applied:
            click.echo(f"{done.changed} of {done.nodes} nodes were changed; all are {kind} now")
        else:
            click.echo(f"{done.changed} of {done.nodes} nodes are not {kind}; --apply changes them")
        if apply:
            settings.finish(f"make {done.changed} of {done.nodes} nodes of {file} {kind}", dry_run=dry_run)

    try:
        anyio.run(run)
    except KactlError as error:
        raise Failure(str(error)) from None
