"""`kactl pki`: certificates for the network of controllers and participants, made by the program openssl.

    kactl pki init pki                       pki/ca.pem, pki/ca.key
    kactl pki issue pki controller/1         pki/controller-1.pem, pki/controller-1.key
    kactl pki issue pki participant/3        pki/participant-3.pem, pki/participant-3.key

The authority's key signs programs and is needed for nothing else: keep it off the machines that run them.
"""

import contextlib
import errno
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import click

from kactl.decide.messages.sessions import UNNAMED
from kactl.model import check_participant_name

from .common_options import Settings, changes_host, with_options
from .exits import Exit, Failure

_RUN_S: Final = 60.0
_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_AUTHORITY_DAYS: Final = 3650
_DAYS: Final = 365
# A certificate ends in the year 9999 at the latest.
_DAYS_MAX: Final = 36_500
_CLUSTER: Final = "cluster"
# As in the configuration, whose certificates name it.
_CLUSTER_MAX: Final = 249
_NAME_MAX: Final = 64
# Controllers and participants are named by their ids.
_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_BY_ID: Final = frozenset({"controller", "participant"})
_ROLES: Final = frozenset({*_BY_ID, "spectator", "client", "user"})
_folder = click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")


@click.group(short_help="Make certificates for controllers and participants.")
def pki() -> None:
    """Make an authority, and certificates of controllers, participants, spectators and clients.

    All programs of a cluster trust the authority in DIR/ca.pem. Each has a certificate with its identity, such as
    controller/1 or participant/3, and its key. The program openssl has to be installed.
    """


@pki.command(short_help="Make an authority.")
@_folder
@click.option("--cluster", default="kactl", show_default=True, help="Name of the cluster, part of each identity.")
@click.option(
    "--days",
    type=click.IntRange(1, _DAYS_MAX),
    default=_AUTHORITY_DAYS,
    show_default=True,
    help="Days until it expires.",
)
@changes_host
@with_options((), server=False)
def init(settings: Settings, *, folder: Path, cluster: str, days: int, dry_run: bool) -> None:
    """Make the authority of a cluster in DIR."""
    if not cluster.strip() or not cluster.isprintable() or len(cluster) > _CLUSTER_MAX:
        raise Failure(
            f"--cluster: {cluster!r} is no name of a cluster: write 1 to {_CLUSTER_MAX} characters in one line",
            Exit.USAGE,
        )
    try:
        if dry_run:
            _check_place(folder)
        else:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"{folder} cannot be used: {error.strerror}") from None
    cert, key = folder / "ca.pem", folder / "ca.key"
    _check_new(cert, key)
    usage = (
        "-addext",
        "basicConstraints=critical,CA:TRUE,pathlen:0",
        "-addext",
        "keyUsage=critical,keyCertSign,cRLSign",
    )
    subject = ("-subj", "/CN=kactl authority", "-days", str(days))
    with _both_or_neither(key, cert, dry_run=dry_run) as (new_key, new_cert):
        _openssl("req", "-x509", *_KEY, *subject, *usage, "-keyout", new_key, "-out", new_cert)
        if not dry_run:
            (folder / _CLUSTER).write_text(f"{cluster}\n")
    made = f"{cert}: the authority of cluster {cluster}. Every program needs this file, and none needs {key}."
    settings.finish(f"make {cert}, {key}, the authority of cluster {cluster}", made, dry_run=dry_run)


@pki.command(short_help="Make a certificate.")
@_folder
@click.argument("identities", nargs=-1, required=True, metavar="ROLE/NAME...")
@click.option(
    "--days", type=click.IntRange(1, _DAYS_MAX), default=_DAYS, show_default=True, help="Days until it expires."
)
@changes_host
@with_options((), server=False)
def issue(settings: Settings, *, folder: Path, identities: tuple[str, ...], days: int, dry_run: bool) -> None:
    """Make a certificate for a program, which may have several identities: controller/1, participant/3.
    user/NAME is for a client of the admin API.

    The files are named after the first one.
    """
    uris = [_uri(folder, identity) for identity in identities]
    name = identities[0].replace("/", "-").replace(UNNAMED, "any")
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    _check_new(cert, key)
    with _both_or_neither(key, cert, dry_run=dry_run) as (new_key, new_cert):
        request, extensions = new_key.with_name("request"), new_key.with_name("extensions")
        lines = ["subjectAltName=" + ",".join(f"URI:{uri}" for uri in uris), "extendedKeyUsage=serverAuth,clientAuth"]
        lines += ["basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature"]
        extensions.write_text("\n".join(lines) + "\n")
        subject = re.sub(r"[^A-Za-z0-9._@-]", "_", name)[:_NAME_MAX]  # programs are identified by the URIs alone
        _openssl("req", *_KEY, "-subj", f"/CN={subject}", "-keyout", new_key, "-out", request)
        # A random serial number: no file counts them.
        serial = f"0x{os.urandom(16).hex()}"
        authority = ("-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-set_serial", serial)
        days_valid = ("-days", str(days))
        _openssl("x509", "-req", *authority, *days_valid, "-in", request, "-extfile", extensions, "-out", new_cert)
    made = f"{cert}, {key}: {', '.join(uris)}, for {days} days"
    settings.finish(f"make {made}", f"{made}.", dry_run=dry_run)


def _uri(folder: Path, identity: str) -> str:
    try:
        cluster = (folder / _CLUSTER).read_text().strip()
    except OSError:
        raise Failure(f"{folder} has no authority: run `kactl pki init {folder}` first") from None
    role, _, name = identity.partition("/")
    is_name = _ID.fullmatch(name) if role in _BY_ID else name.isprintable() and 0 < len(name) <= _NAME_MAX
    if role == "participant" and not is_name:
        is_name = name == UNNAMED or check_participant_name(name) is None
    if role not in _ROLES or not is_name or "/" in name:
        raise Failure(
            f"{identity!r} is no identity: write controller/1, participant/3, participant/NAME, 'participant/*' for "
            "all participants without an id and a name, spectator/NAME, client/NAME or "
            f"user/NAME, where NAME has at most {_NAME_MAX} characters",
            Exit.USAGE,
        )
    return f"kactl://{quote(cluster, safe='')}/{role}/{quote(name, safe='')}"


@contextlib.contextmanager
def _both_or_neither(key: Path, cert: Path, *, dry_run: bool) -> Iterator[tuple[Path, Path]]:
    """Yields the files to write. At the end of the block they get their names.

    If the block fails, or after a dry run, they are removed.
    """
    try:
        with tempfile.TemporaryDirectory(dir=None if dry_run else key.parent) as made:
            new_key, new_cert = Path(made) / key.name, Path(made) / cert.name
            yield new_key, new_cert
            if not dry_run:
                new_key.replace(key)
                new_cert.replace(cert)
    except OSError as error:
        raise Failure(f"{key.parent} cannot be written: {error.strerror}; choose another folder") from None


def _check_place(folder: Path) -> None:
    """Check that a folder can be created.

    Raises:
        OSError: as `mkdir` would.
    """
    present = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not present.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not os.access(present, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _check_new(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise Failure(f"{path} exists: remove it first, or choose another folder")


def _openssl(*arguments: str | Path) -> None:
    """Run openssl. The files that it makes are readable by their owner only."""
    try:
        done = subprocess.run(
            ["openssl", *map(str, arguments)], capture_output=True, timeout=_RUN_S, text=True, umask=0o077, check=False
        )
    except OSError as error:
        raise Failure(f"the program openssl cannot be run: {error.strerror}; install it") from None
    except subprocess.TimeoutExpired:
        raise Failure(f"openssl did not end within {_RUN_S:g} s; nothing was made") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["without a message"]
        reason = next((line for line in lines if "error" in line.lower()), lines[-1])
        raise Failure(f"openssl has failed: {reason}; nothing was made")
