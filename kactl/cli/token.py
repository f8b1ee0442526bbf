"""`kactl token`: tokens of the admin API. The commands edit the token file; servers read it again within 2 s."""

import ipaddress
import secrets
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from . import output
from .common_options import Settings, changes_host, options, with_options
from .exits import Exit, Failure, invalid_files_explained, of_system
from .output import NONE, WARN, Cell

if TYPE_CHECKING:
    from kactl.security.access.tokens import Network, NewToken, TokenRecord

ROLES: Final = click.Choice(["viewer", "operator", "admin"])
_HEAD: Final = ("ID", "NAME", "ROLE", "CREATED", "EXPIRES", "NETWORKS")
_Command = TypeVar("_Command", bound=Callable[..., Any])


class TokenInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret, as `-o json` prints it."""

    id: str
    name: str
    role: str
    created: str
    expires: str | None
    expired: bool
    networks: tuple[str, ...]


class _Duration(click.types.StringParamType):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from kactl.config.values import Duration

        if isinstance(value, int):
            return value
        try:
            return Duration.parse(value)
        except ValueError:
            if str(value).strip("0") in ("ms", "s", "m", "h", "d"):
                self.fail(f"{value!r} is no time at all: write 1s or longer", param, ctx)
            self.fail(f"{value!r} is not a duration: write it with a unit, as in 90d or 24h", param, ctx)


class _Network(click.types.StringParamType):
    name = "network"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return ipaddress.ip_network(value)
        except ValueError:
            self.fail(f"{value!r} is not a network: write it as 10.0.0.0/8 or 10.0.0.7", param, ctx)


def _places(command: _Command) -> _Command:
    """Add the options that select the token file."""
    command = click.option("--tokens", metavar="FILE", help="The token file.")(command)
    return click.option("--config", metavar="FILE", help="Configuration of the server.  [your own running server]")(
        command
    )


def _output(command: _Command) -> _Command:
    return click.option(
        "--output", "file", type=click.Path(path_type=Path), metavar="FILE", help="Write the token there, mode 0600."
    )(command)


@click.group(short_help="Create, list, revoke and rotate tokens of the admin API.")
def token() -> None:
    """Create, list, revoke and rotate tokens of the admin API.

    The token file is that of your own running server, of a configuration, or the one that `--tokens` names.
    """


@token.command()
@click.argument("name")
@click.option("--role", type=ROLES, required=True, help="Role of the token.")
@click.option("--expires", type=_Duration(), default="90d", show_default=True, help="Time until it expires.")
@click.option(
    "--networks", type=_Network(), multiple=True, metavar="NETWORK", help="Accept it from these addresses only."
)
@_output
@_places
@changes_host
@with_options(())
def create(
    settings: Settings,
    *,
    name: str,
    role: str,
    expires: int,
    networks: "tuple[Network, ...]",
    file: Path | None,
    config: str | None,
    tokens: str | None,
    dry_run: bool,
) -> None:
    """Create a token, and print it once."""
    from kactl.security.access.role import Role
    from kactl.security.access.tokens import NAME

    if NAME.fullmatch(name) is None:
        raise Failure(f"NAME: {name!r} cannot be used: write letters, digits and . _ @ -, at most 64", Exit.USAGE)
    _check_reader(file, replace=False)

    def change(records: "tuple[TokenRecord, ...]") -> "tuple[NewToken, tuple[TokenRecord, ...]]":
        if any(record.name == name for record in records):
            raise Failure(f"NAME: there is a token {name}: choose another name, or run `kactl token rotate {name}`")
        made = _new(name, Role.of(role), expires, networks)
        return made, (*records, made.record)

    path = _token_file(settings, config, tokens, create=True)
    made = _changed(path, change, lambda made: _hand_over(made, file), dry_run=dry_run)
    _created(settings, path, made, file, dry_run=dry_run)


@token.command("list")
@_places
@options
def list_(settings: Settings, *, config: str | None, tokens: str | None) -> None:
    """List tokens, without their secrets."""
    from kactl.admin.identity.token_file import read_tokens

    with invalid_files_explained():
        items = [_info(record) for record in read_tokens(_token_file(settings, config, tokens))]
    if not settings.printed(items, items):
        output.print_lines(output.table(_HEAD, map(_row, items)))


@token.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@_places
@changes_host
@with_options(())
def revoke(settings: Settings, *, ids: tuple[str, ...], config: str | None, tokens: str | None, dry_run: bool) -> None:
    """Revoke tokens by id. Requests with them are rejected, and their event streams end, within 3 s."""

    def change(records: "tuple[TokenRecord, ...]") -> "tuple[None, tuple[TokenRecord, ...]]":
        unknown = sorted(set(ids) - {record.id for record in records})
        if unknown:
            raise Failure(f"{', '.join(unknown)}: there is no such token: see `kactl token list`")
        return None, tuple(record for record in records if record.id not in ids)

    path = _token_file(settings, config, tokens)
    _changed(path, change, dry_run=dry_run)
    named = ", ".join(ids)
    settings.finish(f"revoke {named} in {path}", f"Revoked {named}.", dry_run=dry_run)


@token.command(short_help="Replace a token by one with the same role.")
@click.argument("name")
@click.option(
    "--overlap", type=_Duration(), default="24h", show_default=True, help="Time for which the old one stays valid."
)
@_output
@_places
@changes_host
@with_options(())
def rotate(
    settings: Settings,
    *,
    name: str,
    overlap: int,
    file: Path | None,
    config: str | None,
    tokens: str | None,
    dry_run: bool,
) -> None:
    """Create another token with the same name, role, networks and lifetime, and let the old one expire."""
    _check_reader(file, replace=True)

    def change(records: "tuple[TokenRecord, ...]") -> "tuple[NewToken, tuple[TokenRecord, ...]]":
        old = [record for record in records if record.name == name]
        if not old:
            raise Failure(f"{name}: there is no such token: see `kactl token list`")
        newest = max(old, key=lambda record: record.created_ms)
        lifetime_ms = (newest.expires_ms or newest.created_ms) - newest.created_ms
        made = _new(name, newest.role, lifetime_ms, newest.networks)
        end_ms = made.record.created_ms + overlap
        kept = [
            msgspec.structs.replace(record, expires_ms=min(record.expires_ms or end_ms, end_ms))
            if record.name == name
            else record
            for record in records
        ]
        return made, (*kept, made.record)

    path = _token_file(settings, config, tokens)
    made = _changed(path, change, lambda made: _hand_over(made, file), dry_run=dry_run)
    _created(settings, path, made, file, dry_run=dry_run)


# -- the token file ----------------------------------------------------------------------------------------------------


def _token_file(settings: Settings, config: str | None, tokens: str | None, *, create: bool = False) -> Path:
    """Returns the path of the token file that the options name, or that of this user's running server.

    Args:
        create: the file that --tokens names need not exist.
    """
    if tokens is not None:
        if not create and not Path(tokens).exists():
            raise Failure(f"--tokens: there is no file {tokens}: `kactl token create` makes it", Exit.USAGE)
        return Path(tokens)
    if config is not None:
        from kactl.admin.identity.places import places_of
        from kactl.model.errors import BadConfig

        from .up import served_config

        try:
            return places_of(served_config(config)).tokens
        except BadConfig as error:
            raise Failure(f"{config}: {error}", Exit.USAGE) from None
    from .credentials import running

    found = running(settings.server)
    if found is None:
        raise Failure(
            f"you do not run the server {settings.server}: name the token file with --tokens, or the configuration of "
            "the server with --config",
            Exit.USAGE,
        )
    return Path(found.tokens)


_Made = TypeVar("_Made")


def _changed(
    path: Path,
    change: "Callable[[tuple[TokenRecord, ...]], tuple[_Made, Iterable[TokenRecord]]]",
    hand_over: Callable[[_Made], None] = lambda made: None,
    *,
    dry_run: bool,
) -> _Made:
    """Change the token file. The change is undone if the new token cannot be handed over."""
    from kactl.admin.identity.token_file import KEY, read_tokens, write_tokens
    from kactl.runtime.private_files import locked, make_folder

    with invalid_files_explained():
        if dry_run:
            return change(read_tokens(path) if path.exists() else ())[0]
        if not path.parent.exists():
            make_folder(path.parent, KEY)
        with locked(path, KEY):
            before = read_tokens(path) if path.exists() else None
            made, records = change(before or ())
            write_tokens(path, records)
            try:
                hand_over(made)
            except BaseException:
                if before is None:
                    path.unlink()
                else:
                    write_tokens(path, before)
                raise
    return made


def _new(name: str, role: Any, lifetime_ms: int, networks: "Iterable[Network]") -> "NewToken":
    from kactl.security.access.tokens import ID_BYTES, SECRET_BYTES, new_token

    now_ms = int(time.time()) * 1000  # the file has whole seconds
    return new_token(
        name,
        role,
        random=secrets.token_bytes(ID_BYTES + SECRET_BYTES),
        now_ms=now_ms,
        expires_ms=now_ms + lifetime_ms,
        networks=networks,
    )


# -- output ------------------------------------------------------------------------------------------------------------


def _check_reader(file: Path | None, *, replace: bool) -> None:
    """Check that a token can be shown or stored: in a log or a pipe, others would find it.

    Args:
        replace: the file may hold an earlier token.
    """
    if file is None:
        if not sys.stdout.isatty():
            raise Failure("stdout is not a terminal: write the token to a file with --output FILE", Exit.USAGE)
        return
    if not file.parent.is_dir():
        raise Failure(
            f"--output: {file}: there is no folder {file.parent}: create it, or choose another one", Exit.USAGE
        )
    if file.exists() and not file.is_file():
        raise Failure(f"--output: {file} is not a file: choose another name", Exit.USAGE)
    if not replace and file.exists() and file.stat().st_size:
        raise Failure(f"--output: {file} exists: choose another name, or remove it first", Exit.USAGE)


def _hand_over(made: "NewToken", file: Path | None) -> None:
    from kactl.runtime.private_files import write_private

    if file is None:
        click.echo(made.text)
        return
    try:
        write_private(file, f"{made.text}\n".encode())
    except OSError as error:
        error.filename = None  # of the temporary file
        raise of_system(error, f"--output: {file}") from None


def _created(settings: Settings, path: Path, made: "NewToken", file: Path | None, *, dry_run: bool) -> None:
    record = made.record
    subject = f"of {record.name}, role {record.role.label}"
    where = ". It is not shown again." if file is None else f", is in {file}."
    named = "" if dry_run else f"{record.id} "  # the next run draws another one
    settings.finish(f"add token {named}{subject}, to {path}", f"Token {record.id} {subject}{where}", dry_run=dry_run)


def _info(record: "TokenRecord") -> TokenInfo:
    from kactl.admin.identity.token_file import moment

    return TokenInfo(
        id=record.id,
        name=record.name,
        role=record.role.label,
        created=moment(record.created_ms),
        expires=None if record.expires_ms is None else moment(record.expires_ms),
        expired=record.expires_ms is not None and record.expires_ms <= time.time() * 1000,
        networks=tuple(map(str, record.networks)),
    )


def _row(info: TokenInfo) -> tuple[Cell, ...]:
    expires: Cell = (f"{info.expires} (expired)", WARN) if info.expired else info.expires or NONE
    return info.id, info.name, info.role, info.created, expires, " ".join(info.networks) or NONE
