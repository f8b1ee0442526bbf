"""`kactl kafka-user`: users of kactl's Kafka listeners, in a file of its own. Servers read it again within 2 s."""

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
import msgspec

from . import output
from .common_options import Settings, changes_host, local_options, with_options
from .config import FILE_DEFAULT
from .exits import Exit, Failure, invalid_files_explained
from .output import Cell

if TYPE_CHECKING:
    from kactl.security.sasl import ScramVerifier
    from kactl.security.sasl.scram import Name
    from kactl.transports.kafka.listener.user_file import User

MECHANISMS: Final = click.Choice(["SCRAM-SHA-512", "SCRAM-SHA-256"])
# As `kafka-configs` uses; a login costs twice as much time as with the fewest that are allowed.
ITERATIONS: Final = 8192
_SALT_BYTES: Final = 16
_HEAD: Final = ("NAME", "MECHANISMS", "ITERATIONS")
_Command = TypeVar("_Command", bound=Callable[..., Any])


class UserInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A user, as `-o json` prints it."""

    name: str
    mechanisms: tuple[str, ...]
    iterations: tuple[int, ...]


def _places(command: _Command) -> _Command:
    """Add the options that select the file."""
    command = click.option("--users", metavar="FILE", help="The file of users.  [kafka.users of the configuration]")(
        command
    )
    return click.option(
        "--config", metavar="FILE", default=FILE_DEFAULT, show_default=True, help="Configuration of the server."
    )(command)


@click.group("kafka-user", short_help="Add, list and remove users of kactl's Kafka listeners.")
def kafka_user() -> None:
    """Add, list and remove users of kactl's Kafka listeners.

    They are in a file, beside the users of the cluster that `kafka-configs` writes, and take precedence over them. The
    file has verifiers of passwords (SCRAM), and no passwords.
    """


@kafka_user.command()
@click.argument("name")
@click.option(
    "--mechanism", "mechanisms", type=MECHANISMS, multiple=True, default=["SCRAM-SHA-512"], show_default=True,
    help="Mechanism of its logins; may be repeated. PLAIN accepts any.",
)  # fmt: skip
@click.option(
    "--iterations", type=click.IntRange(4096, 65_536), default=ITERATIONS, show_default=True, help="Cost of a guess."
)
@click.option("--password-file", metavar="FILE", help="File of mode 0600 with the password.  [asked for]")
@click.option("--replace", is_flag=True, help="Replace a user that exists.")
@_places
@changes_host
@with_options((), server=False)
def add(
    settings: Settings,
    *,
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_file: str | None,
    replace: bool,
    config: str,
    users: str | None,
    dry_run: bool,
) -> None:
    """Add a user with a password, or give it another one (`--replace`)."""
    from kactl.security.sasl import verifier
    from kactl.transports.kafka.listener.user_file import User, is_name

    if not is_name(name):
        raise Failure(f"NAME: {name!r} cannot be used: write printable characters, at most 255", Exit.USAGE)
    path = _user_file(config, users)

    def change(known: "dict[str, User]") -> "dict[str, User]":
        if name in known and not replace:
            raise Failure(f"NAME: there is a user {name}: choose another name, or give it another password (--replace)")
        return {**known, name: User(name, made)}

    made: dict[Name, ScramVerifier] = {}
    change(_known(path))  # before the password is asked for
    mechanisms = tuple(dict.fromkeys(mechanisms))
    password = "" if dry_run and password_file is None else _password(password_file)
    for mechanism in mechanisms:
        named = cast("Name", mechanism)
        made[named] = verifier(named, password, salt=os.urandom(_SALT_BYTES), iterations=iterations)
    _changed(path, change, dry_run=dry_run)
    by = ", ".join(mechanisms)
    settings.finish(f"add User:{name} with {by} to {path}", f"User:{name} can log in by {by}.", dry_run=dry_run)


@kafka_user.command("list")
@_places
@local_options
def list_(settings: Settings, *, config: str, users: str | None) -> None:
    """List the users of the file."""
    items = [_info(user) for _, user in sorted(_known(_user_file(config, users)).items())]
    if not settings.printed(items, items):
        output.print_lines(output.table(_HEAD, map(_row, items)))


@kafka_user.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_places
@changes_host
@with_options((), server=False)
def remove(settings: Settings, *, names: tuple[str, ...], config: str, users: str | None, dry_run: bool) -> None:
    """Remove users. Logins that exist last until they have to be renewed (`kafka.reauth`)."""

    def change(known: "dict[str, User]") -> "dict[str, User]":
        unknown = sorted(set(names) - set(known))
        if unknown:
            raise Failure(f"{', '.join(unknown)}: there is no such user in the file: see `kactl kafka-user list`")
        return {name: user for name, user in known.items() if name not in names}

    path = _user_file(config, users)
    _changed(path, change, dry_run=dry_run)
    named = ", ".join(names)
    settings.finish(f"remove {named} from {path}", f"Removed {named}.", dry_run=dry_run)


def _user_file(config: str, users: str | None) -> Path:
    if users is not None:
        return Path(users)
    from . import setup

    path = setup.read_config(config).kafka.users
    if not path:
        raise Failure(f"{config}: kafka.users is not set: name the file there, or with --users", Exit.USAGE)
    return Path(path)


def _changed(path: Path, change: "Callable[[dict[str, User]], dict[str, User]]", *, dry_run: bool) -> None:
    from kactl.runtime.private_files import locked, make_folder
    from kactl.transports.kafka.listener.user_file import KEY, write_users

    with invalid_files_explained():
        if dry_run:
            change(_known(path))
            return
        if not path.parent.exists():
            make_folder(path.parent, KEY)
        with locked(path, KEY):
            write_users(path, change(_known(path)).values())


def _known(path: Path) -> "dict[str, User]":
    from kactl.transports.kafka.listener.user_file import read_users

    with invalid_files_explained(), contextlib.suppress(FileNotFoundError):
        return read_users(path)
    return {}


def _password(file: str | None) -> str:
    """Returns the password in a file, or the one that the user enters twice. It is never an argument."""
    if file is not None:
        from .secret_files import read_secret

        with invalid_files_explained():
            return read_secret(file, "--password-file").reveal().decode()
    if not sys.stdin.isatty():
        raise Failure("stdin is not a terminal: write the password into a file, and give --password-file", Exit.USAGE)
    entered: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return entered


def _info(user: "User") -> UserInfo:
    return UserInfo(
        name=user.name,
        mechanisms=tuple(sorted(user.verifiers)),
        iterations=tuple(known.iterations for _, known in sorted(user.verifiers.items())),
    )


def _row(info: UserInfo) -> tuple[Cell, ...]:
    return info.name, " ".join(info.mechanisms), " ".join(map(str, info.iterations))
