"""`kactl pki`: certificates for the network of controllers and participants, made by the program openssl.

    kactl pki init pki                       pki/ca.pem, pki/ca.key
    kactl pki issue pki controller/1         pki/controller-1.pem, pki/controller-1.key
    kactl pki issue pki participant/3        pki/participant-3.pem, pki/participant-3.key

The authority's key signs programs and is needed for nothing else: keep it off the machines that run them.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final
from urllib.parse import quote

import click

from .common_options import Settings, with_options
from .exits import Exit, Failure

_RUN_S: Final = 60.0
_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_AUTHORITY_DAYS: Final = 3650
_DAYS: Final = 365
_CLUSTER: Final = "cluster"
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
    "--days", type=click.IntRange(1), default=_AUTHORITY_DAYS, show_default=True, help="Days until it expires."
)
@with_options((), server=False)
def init(settings: Settings, *, folder: Path, cluster: str, days: int) -> None:
    """Make the authority of a cluster in DIR."""
    try:
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
    _openssl("req", "-x509", *_KEY, *subject, *usage, "-keyout", key, "-out", cert)
    (folder / _CLUSTER).write_text(f"{cluster}\n")
    settings.note(f"{cert}: the authority of cluster {cluster}. Every program needs this file, and none needs {key}.")


@pki.command(short_help="Make a certificate.")
@_folder
@click.argument("identities", nargs=-1, required=True, metavar="ROLE/NAME...")
@click.option("--days", type=click.IntRange(1), default=_DAYS, show_default=True, help="Days until it expires.")
@with_options((), server=False)
def issue(settings: Settings, *, folder: Path, identities: tuple[str, ...], days: int) -> None:
    """Make a certificate for a program, which may have several identities: controller/1, participant/3.
    user/NAME is for a client of the admin API.

    The files are named after the first one.
    """
    uris = [_uri(folder, identity) for identity in identities]
    name = identities[0].replace("/", "-")
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    _check_new(cert, key)
    with tempfile.TemporaryDirectory() as made:
        request, extensions = Path(made) / "request", Path(made) / "extensions"
        lines = ["subjectAltName=" + ",".join(f"URI:{uri}" for uri in uris), "extendedKeyUsage=serverAuth,clientAuth"]
        lines += ["basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature"]
        extensions.write_text("\n".join(lines) + "\n")
        _openssl("req", *_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        # A random serial number: no file counts them.
        serial = f"0x{os.urandom(16).hex()}"
        authority = ("-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-set_serial", serial)
        days_valid = ("-days", str(days))
        _openssl("x509", "-req", *authority, *days_valid, "-in", request, "-extfile", extensions, "-out", cert)
    settings.note(f"{cert}, {key}: {', '.join(uris)}, for {days} days.")


def _uri(folder: Path, identity: str) -> str:
    from kactl.transports.tcp.identity import Identity

    try:
        cluster = (folder / _CLUSTER).read_text().strip()
    except OSError:
        raise Failure(f"{folder} has no authority: run `kactl pki init {folder}` first") from None
    try:
        role, _, name = identity.partition("/")
        if role == "user" and name:
            # Of the admin API, which no program of the cluster claims.
            return f"kactl://{quote(cluster, safe='')}/user/{quote(name, safe='')}"
        return str(Identity.parse(f"kactl://{cluster}/{role}/{name}"))
    except ValueError:
        raise Failure(
            f"{identity!r} is no identity: write controller/1, participant/3, spectator/NAME, client/NAME or user/NAME",
            Exit.USAGE,
        ) from None


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
    if done.returncode:
        raise Failure(f"openssl has failed: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ''}")
