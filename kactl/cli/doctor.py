"""`kactl doctor`: what is there, what is missing, and what to do about it."""

import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

import click
import msgspec

from . import output
from .exits import Failure
from .output import BAD, GOOD, WARN, Cell
from .settings import Settings, options

# A controller holds a connection to each broker and tool, and a store; clusters have hundreds of brokers.
FILES_MIN: Final = 4096
# Times of the log and of leases are compared between machines; the server's own says no more than full seconds.
SKEW_MAX_S: Final = 2.0
_CONNECT_S: Final = 3.0
_ANSWER_MAX: Final = 16_384

PASS: Final = "pass"
MISSING: Final = "missing"
WARNING: Final = "WARN"
FAILED: Final = "FAIL"
_COLOURS: Final = {PASS: GOOD, MISSING: WARN, WARNING: WARN, FAILED: BAD}


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at.

    Attributes:
        result: pass; missing: not there, and needed only for some commands; WARN; FAIL.
        detail: for what it is missed, or what to do.
    """

    check: str
    result: str
    value: str
    detail: str = ""


@click.command(short_help="Look at what kactl needs.")
@click.option("--config", "file", metavar="FILE", help="A kactl.toml, to try its ZooKeeper as well.")
@options
def doctor(settings: Settings, *, file: str | None) -> None:
    """Look at what kactl needs here: Python, packages, Java, limits, and the servers it would talk to."""
    form = settings.form()
    found = [*_local(), *_zookeeper(file), _clock(settings.server)]
    if form == "json":
        output.print_json(found)
    elif form == "jsonl":
        output.print_jsonl(found)
    else:
        output.print_lines(output.table(("CHECK", "RESULT", "VALUE", "DETAIL"), map(_row, found)))
    failed = [each.check for each in found if each.result == FAILED]
    if failed:
        raise Failure(f"{', '.join(failed)}: see above what to do")


def _row(item: Check) -> tuple[Cell, ...]:
    return item.check, (item.result, _COLOURS[item.result]), item.value or output.NONE, item.detail


# -- here --------------------------------------------------------------------------------------------------------------


def _local() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check(check="python", result=PASS, value=version, detail=sys.executable)
    yield _package("uvloop", "uvloop", "server", "the event loop is plain asyncio, and slower")
    yield _java()
    yield _package("pyspark", "pyspark", "pipeline", "for `kactl forensics`")
    yield _package("pyarrow", "pyarrow", "pipeline", "for `kactl forensics`")
    yield _package("kazoo", "kazoo", "zookeeper", "for real Kafka brokers, whose cluster is kept in ZooKeeper")
    yield _files()


def _package(check: str, name: str, extra: str, needed: str) -> Check:
    import importlib.metadata

    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(check=check, result=MISSING, value="", detail=f"{needed}: pip install 'kactl[{extra}]'")
    return Check(check=check, result=PASS, value=version)


def _java() -> Check:
    try:
        from kactl.forensics.java import NoJava, find_java
    except ModuleNotFoundError as missing:  # pragma: no cover - the pipeline's packages come together
        return Check(check="java", result=MISSING, value="", detail=str(missing))
    try:
        java = find_java(os.environ)
    except NoJava as error:
        return Check(check="java", result=MISSING, value="", detail=f"for `kactl forensics`: {error}")
    return Check(check="java", result=PASS, value=str(java.version), detail=f"{java.home} (from {java.source})")


def _files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= FILES_MIN:
        return Check(check="open-files", result=PASS, value=str(soft))
    allowed = "" if hard == resource.RLIM_INFINITY or hard >= FILES_MIN else f" (root has to raise the limit of {hard})"
    return Check(
        check="open-files",
        result=WARNING,
        value=str(soft),
        detail=f"too few for a large cluster: ulimit -n {FILES_MIN} before kactl is started{allowed}",
    )


# -- elsewhere ---------------------------------------------------------------------------------------------------------


def _zookeeper(file: str | None) -> Iterator[Check]:
    if file is None:
        return
    from .setup import read_config

    store = read_config(file).store
    if store.kind != "zookeeper":
        yield Check(check="zookeeper", result=PASS, value="", detail=f"not used: {file} says {store.kind}")
        return
    for address in store.connect.partition("/")[0].split(","):
        yield _server(address.strip())


def _server(address: str) -> Check:
    """One server of ZooKeeper. That it takes connections is what counts; what it says of itself may be forbidden."""
    host, _, port = address.rpartition(":") if ":" in address else (address, "", "2181")
    check = f"zookeeper {address}"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S) as connection:
            connection.sendall(b"srvr")
            answer = _all(lambda: connection.recv(_ANSWER_MAX))
    except (OSError, ValueError) as error:
        detail = f"cannot be reached ({error}): see that it runs, and that no firewall is in between"
        return Check(check=check, result=FAILED, value="", detail=detail)
    mode = next((line.partition(": ")[2] for line in answer.splitlines() if line.startswith("Mode: ")), "")
    return Check(check=check, result=PASS, value=mode, detail="" if mode else "reachable; it says nothing of itself")


def _all(read: Callable[[], bytes]) -> str:
    """What a server says until it ends; nothing if it takes too long."""
    said = b""
    try:
        while len(said) < _ANSWER_MAX and (more := read()):
            said += more
    except OSError:
        pass
    return said.decode("utf-8", "replace")


def _clock(server: str) -> Check:
    """Ours against that of the server, if one is there."""
    import datetime
    import email.utils
    import http.client
    import urllib.parse

    url = urllib.parse.urlsplit(server)
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=_CONNECT_S)
    try:
        before = time.time()
        connection.request("HEAD", "/livez")
        said = connection.getresponse().getheader("Date")
        after = time.time()
    except (OSError, http.client.HTTPException) as error:
        detail = f"no server at {server} to compare with ({error}): name one with --server"
        return Check(check="clock", result=PASS, value="", detail=detail)
    finally:
        connection.close()
    theirs = None if said is None else email.utils.parsedate_to_datetime(said)
    if theirs is None:
        return Check(check="clock", result=PASS, value="", detail=f"{server} does not tell the time")
    # A full second may have passed on its side since the one that it names began.
    ours = datetime.datetime.fromtimestamp((before + after) / 2, datetime.UTC)
    skew = (ours - theirs).total_seconds() - 0.5
    bad = abs(skew) > SKEW_MAX_S + (after - before)
    detail = f"apart from {server}: see that both follow a time server" if bad else f"against {server}"
    return Check(check="clock", result=WARNING if bad else PASS, value=f"{skew:+.1f}s", detail=detail)
