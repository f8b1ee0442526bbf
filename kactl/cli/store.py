"""`kactl store`: backups of the store of a cluster."""

from pathlib import Path

import click
import msgspec

from . import output
from .common_options import FORMS, Settings, changes_host, with_options
from .exits import Exit, Failure

_file = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
_config = click.option("--config", metavar="FILE", help="Configuration of the server that uses the store.")
_store = click.option(
    "--store",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="SQLite file of a program that embeds kactl, in place of --config.",
)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What was backed up or restored, as `-o json` prints it.

    Attributes:
        replaced: where the database of before is kept; None for a backup, or if there was none.
    """

    store: str
    backup: str
    controller_epoch: int
    topics: int
    partitions: int
    replaced: str | None = None


@click.group(short_help="Back up and restore the store.")
def store() -> None:
    """Back up and restore the store of a cluster in SQLite.

    The store is that of a configuration, of `kactl up` in this folder, or the file that `--store` names. etcd and
    ZooKeeper have backups of their own: see docs/how-to/back-up-and-restore.md.
    """


@store.command(short_help="Write a consistent copy of the store, also while it is in use.")
@_file
@_config
@_store
@with_options(FORMS, server=False)
def backup(settings: Settings, *, file: Path, config: str | None, store: Path | None) -> None:
    """Write a consistent copy of the store to FILE, which must not exist. Controllers may run meanwhile."""
    from kactl.model.errors import KactlError
    from kactl.runtime.clock import SystemClock
    from kactl.stores.sqlite.backup import back_up

    path = _path(config, store)
    try:
        content = back_up(path, file, SystemClock())
    except KactlError as error:
        raise Failure(str(error)) from None
    _show(settings, Result(store=str(path), backup=str(file), **content._asdict()))
    settings.note(f"{path} is backed up in {file}: {content.topics} topics, {content.partitions} partitions.")


@store.command(short_help="Put a backup in the place of the store, with epochs above all that were issued.")
@_file
@_config
@_store
@changes_host
@with_options(FORMS, server=False)
def restore(settings: Settings, *, file: Path, config: str | None, store: Path | None, dry_run: bool) -> None:
    """Put the backup FILE in the place of the store. Everything that uses the store has to be stopped.

    The store of before is kept beside it. Controller epochs and leader epochs are raised above all that can have been
    issued since the backup, so that participants and fencing tokens accept the next leaders.
    """
    from kactl.model.errors import KactlError
    from kactl.runtime.clock import SystemClock
    from kactl.stores.sqlite.backup import restore as restored_from

    path = _path(config, store)
    try:
        restored = restored_from(file, path, SystemClock(), dry_run=dry_run)
    except KactlError as error:
        raise Failure(str(error)) from None
    content, replaced = restored.content, None if restored.replaced is None else str(restored.replaced)
    _show(settings, Result(store=str(path), backup=str(file), replaced=replaced, **content._asdict()))
    counts = f"{content.topics} topics, {content.partitions} partitions; all epochs are raised by"
    done = f"{path} is restored from {file}: {counts} {restored.epochs_ahead} or more."
    settings.finish(f"restore {path} from {file}", done, dry_run=dry_run)
    if replaced is not None:
        settings.note(f"The store of before is kept as {replaced}.")
    if restored.unread:
        reason = output.harmless(restored.unread)
        settings.note(f"Its epochs could not be read ({reason}), so those of the backup count alone.")


def _path(config: str | None, store: Path | None) -> Path:
    """Returns the file of the store.

    Raises:
        Failure: USAGE: the store is not in SQLite, or two stores are named.
    """
    from .up import read_config, served_config

    if store is not None:
        if config is not None:
            raise Failure("--store, --config: name one of the two", Exit.USAGE)
        return store
    section = (read_config(None, {}) if config is None else served_config(config)).store
    if section.kind != "sqlite":
        page = "docs/how-to/back-up-and-restore.md"
        raise Failure(f"store.kind is {section.kind}, which has backups of its own: follow {page}", Exit.USAGE)
    return Path(section.path)


def _show(settings: Settings, result: Result) -> None:
    form = settings.form()
    if form in output.DATA:
        output.print_data(form, result, [result])
