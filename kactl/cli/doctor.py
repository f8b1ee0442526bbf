"""`kactl doctor`: checks of the requirements on this machine, with remedies."""

import contextlib
import json
import os
import resource
import socket
import ssl
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import click
import msgspec

from kactl.runtime.installation import install
from kactl.telemetry.health import CERTIFICATE_DAYS

from . import output
from .common_options import Settings, options
from .doctor_check import FAILED, MISSING, PASS, WARNING, Check
from .exits import Failure
from .output import BAD, GOOD, WARN, Cell

if TYPE_CHECKING:
    from pathlib import Path

    from kactl.config.settings import Config, StoreConfig
    from kactl.security.access.tokens import TokenRecord
    from kactl.stores.zookeeper.permissions import Survey

# A controller has a connection to each broker and tool, and to the store; clusters have hundreds of brokers.
FILES_MIN: Final = 4096
# Times of logs and leases are compared between machines; the server's `Date` header has full seconds only.
SKEW_MAX_S: Final = 2.0
_CONNECT_S: Final = 3.0
_ANSWER_MAX: Final = 16_384
# Nodes that a check names.
_NAMED_MAX: Final = 5

_COLOURS: Final = {PASS: GOOD, MISSING: WARN, WARNING: WARN, FAILED: BAD}


@click.command(short_help="Check the requirements of kactl.")
@click.option("--config", "file", metavar="FILE", help="Configuration file; its ZooKeeper or etcd is checked as well.")
@options
def doctor(settings: Settings, *, file: str | None) -> None:
    """Check the requirements on this machine: Python, packages, Java, limits, and the servers that kactl would use."""
    checks = [
        *_local(),
        *_zookeeper(file),
        *_etcd(file),
        *_network(file),
        *_kafka(file),
        *_api(file),
        _clock(settings.server),
    ]
    if not settings.printed(checks, checks):
        output.print_lines(output.table(("CHECK", "RESULT", "VALUE", "DETAIL"), map(_row, checks)))
    failed = [check.check for check in checks if check.result == FAILED]
    if failed:
        raise Failure(f"{', '.join(failed)}: failed; the remedies are listed above")


def _row(item: Check) -> tuple[Cell, ...]:
    return item.check, (item.result, _COLOURS[item.result]), item.value or output.NONE, item.detail


# -- this machine ------------------------------------------------------------------------------------------------------


def _local() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check(check="python", result=PASS, value=version, detail=sys.executable)
    yield _package("uvloop", "uvloop", "server", "the event loop is that of asyncio, which is slower")
    yield _java()
    yield _package("pyspark", "pyspark", "pipeline", "for `kactl forensics`")
    yield _package("pyarrow", "pyarrow", "pipeline", "for `kactl forensics`")
    yield _package("kazoo", "kazoo", "zookeeper", "for real Kafka brokers, whose cluster is stored in ZooKeeper")
    yield _files()


def _package(check: str, name: str, extra: str, purpose: str) -> Check:
    import importlib.metadata

    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(check=check, result=MISSING, value="", detail=f"{purpose}: {install(extra)}")
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
    allowed = "" if hard == resource.RLIM_INFINITY or hard >= FILES_MIN else f" (root must raise the limit of {hard})"
    return Check(
        check="open-files",
        result=WARNING,
        value=str(soft),
        detail=f"too few for a large cluster: run ulimit -n {FILES_MIN} before starting kactl{allowed}",
    )


def _permissions(store: "StoreConfig") -> Check:
    """Check that only brokers and kactl may change the cluster's nodes."""
    import anyio

    from kactl.model.errors import KactlError

    from .stores import zookeeper_permissions

    async def survey() -> "Survey":
        limited = msgspec.structs.replace(store, session_timeout=int(_CONNECT_S * 1000))
        async with zookeeper_permissions(limited) as permissions:
            return await permissions.survey()

    check = "zookeeper permissions"
    try:
        found = anyio.run(survey)
    except KactlError as error:
        return Check(check=check, result=FAILED, value="", detail=str(error))
    if found.is_open:
        detail = "everybody who reaches ZooKeeper can change the cluster; see docs/security.md"
        return Check(check=check, result=WARNING, value="open", detail=detail)
    if found.open_nodes:
        named = ", ".join(found.open_nodes[:_NAMED_MAX])
        detail = f"everybody can change {len(found.open_nodes)} of {found.nodes} nodes ({named}): run `kactl zk-secure`"
        return Check(check=check, result=FAILED, value="mixed", detail=detail)
    return Check(check=check, result=PASS, value="secure", detail=f"{found.nodes} nodes")


# -- servers ---------------------------------------------------------------------------------------------------------


def _zookeeper(file: str | None) -> Iterator[Check]:
    if file is None:
        return
    from .doctor_brokers import broker_checks
    from .stores import tls_context
    from .up import served_config

    store = served_config(file).store
    if store.kind != "zookeeper":
        yield Check(check="zookeeper", result=PASS, value="", detail=f"not used: store.kind in {file} is {store.kind}")
        return
    tls = tls_context(store) if store.tls else None
    servers = [_server(address.strip(), tls) for address in store.connect.partition("/")[0].split(",")]
    yield from servers
    if any(server.result == PASS for server in servers):
        yield _permissions(store)
        yield from broker_checks(served_config(file))


def _etcd(file: str | None) -> Iterator[Check]:
    """Check each member of etcd: it passes if it is healthy, which needs a leader among the members."""
    if file is None:
        return
    from .stores import tls_context
    from .up import served_config

    store = served_config(file).store
    if store.kind != "etcd":
        return
    tls = tls_context(store)
    for endpoint in store.endpoints:
        url = endpoint.rstrip("/")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=_CONNECT_S, context=tls) as response:
                healthy = b'"true"' in response.read(_ANSWER_MAX)
            with urllib.request.urlopen(f"{url}/version", timeout=_CONNECT_S, context=tls) as response:
                version = str(json.loads(response.read(_ANSWER_MAX))["etcdserver"])
        except (OSError, ValueError, KeyError) as error:
            detail = f"cannot be reached, or is no etcd ({error}): check that it runs, and that no firewall blocks it"
            yield Check(check=f"etcd {url}", result=FAILED, value="", detail=detail)
            continue
        detail = "" if healthy else "it is not healthy: check that a majority of its members runs"
        yield Check(check=f"etcd {url}", result=PASS if healthy else FAILED, value=version, detail=detail)


def _network(file: str | None) -> Iterator[Check]:
    """Check the certificate of `[network]`, and that every controller can be reached with it."""
    if file is None:
        return
    from kactl.model.errors import KactlError

    from .up import served_config

    config = served_config(file)
    section = config.network
    if not (section.listen or section.controllers):
        return
    if section.cert:
        yield _certificate(section.cert)
    elif not section.secret_file:
        yield _own_secret()
    for address in section.controllers:
        check = f"controller {address}"
        try:
            found = _probe(config, address)
        except KactlError as error:
            yield Check(check=check, result=FAILED, value="", detail=str(error))
        else:
            yield Check(check=check, result=PASS, value=found)


def _own_secret() -> Check:
    """Check the secret that programs of this user share, which is made if there is none."""
    from kactl.model.errors import KactlError
    from kactl.runtime.user_state import own_secret, secret_path

    try:
        is_open = own_secret() is None
    except KactlError as error:
        return Check(check="network", result=FAILED, value="", detail=str(error))
    if not is_open:
        return Check(check="network", result=PASS, value=str(secret_path()))
    detail = f"insecure: it asks for no secret, because {secret_path()} cannot be written: give network.secret-file"
    return Check(check="network", result=WARNING, value="open", detail=detail)


def _api(file: str | None) -> Iterator[Check]:
    """Check who can reach the admin API, its tokens and its certificate."""
    if file is None:
        return
    from kactl.admin.exposure import API, checked
    from kactl.admin.identity.places import places_of
    from kactl.admin.identity.token_file import read_tokens
    from kactl.model.errors import KactlError

    from .up import served_config

    config = served_config(file)
    check = f"api {config.api.listen}"
    try:
        found = checked(config)
    except KactlError as error:
        yield Check(check=check, result=FAILED, value="", detail=str(error))
    else:
        is_open = any(opening.interface == API for opening in found)
        detail = "others can reach it, and it does not encrypt; see docs/security.md" if is_open else ""
        yield Check(check=check, result=WARNING if is_open else PASS, value="open" if is_open else "", detail=detail)
        for opening in found:
            if opening.interface != API:
                detail = f"{opening.what}; see docs/security.md"
                yield Check(check=opening.interface, result=WARNING, value="open", detail=detail)
    if config.api.tls.client_auth == "required" and not config.api.probe_listen:
        detail = "probes need a certificate, as all clients do: give load balancers one, or set api.probe-listen"
        yield Check(check="probes", result=WARNING, value="certificate", detail=detail)
    if config.api.tls.cert:
        yield _certificate(config.api.tls.cert, needs_identity=False)
    try:
        tokens = places_of(config).tokens
    except KactlError as error:
        yield Check(check="tokens", result=FAILED, value="", detail=str(error))
    else:
        yield from _tokens(tokens, read_tokens)


def _tokens(path: "Path", read: "Callable[[Path], tuple[TokenRecord, ...]]") -> Iterator[Check]:
    """Check that the token file can be read, and which tokens end soon."""
    from kactl.model.errors import KactlError

    check = f"tokens {path}"
    try:
        records = read(path)
    except KactlError as error:
        yield Check(check=check, result=FAILED, value="", detail=str(error))
        return
    soon_ms = (time.time() + CERTIFICATE_DAYS * 86_400) * 1000
    ending = [record.name for record in records if record.expires_ms is not None and record.expires_ms < soon_ms]
    detail = f"expired, or soon: {', '.join(ending[:_NAMED_MAX])}: run `kactl token rotate NAME`" if ending else ""
    yield Check(check=check, result=WARNING if ending else PASS, value=str(len(records)), detail=detail)


def _kafka(file: str | None) -> Iterator[Check]:
    """Check that clients of the brokers do not see kactl, for which each of their requests would be a detour."""
    if file is None:
        return
    from .up import served_config

    kafka = served_config(file).kafka
    if not kafka.listeners:
        return
    others = [endpoint.listener for endpoint in kafka.advertised if endpoint.listener != kafka.listener_name]
    if others:
        detail = (
            f"clients on {', '.join(others)} see kactl as a broker, and send it requests: set kafka.visible-on to "
            f'["{kafka.listener_name}"]'
        )
        yield Check(check="kafka listeners", result=WARNING, value="visible", detail=detail)
    else:
        yield Check(check="kafka listeners", result=PASS, value="", detail="only brokers see kactl")


def _probe(config: "Config", address: str) -> str:
    """Returns the identity of the controller at an address. Raises KactlError if there is none for this program."""
    import asyncio

    from kactl.transports.tcp.identity import Identity, Role

    from .network import tcp_network

    own = Identity(config.cluster, Role.CONTROLLER, str(config.node_id))
    return str(asyncio.run(tcp_network(config).probe(address, own)))


def _certificate(path: str, *, needs_identity: bool = True) -> Check:
    """Check how long a certificate is valid, and show its identities. Python's own reader is private."""
    import datetime
    import email.utils
    import subprocess

    check = f"certificate {path}"
    command = ["openssl", "x509", "-in", path, "-noout", "-enddate", "-ext", "subjectAltName"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CONNECT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(check=check, result=WARNING, value="", detail=f"the program openssl cannot be run: {error}")
    if done.returncode:
        return Check(check=check, result=FAILED, value="", detail="it is no certificate in PEM: see `kactl pki issue`")
    _, _, end = done.stdout.partition("notAfter=")
    ends = datetime.datetime.strptime(end.splitlines()[0], "%b %d %H:%M:%S %Y GMT").replace(tzinfo=datetime.UTC)
    left = ends - datetime.datetime.now(datetime.UTC)
    names = [word.strip(" ,") for word in done.stdout.split() if word.startswith("URI:")]
    value = f"{left.days} days"
    if left.total_seconds() <= 0:
        return Check(check=check, result=FAILED, value="expired", detail=f"since {email.utils.format_datetime(ends)}")
    if left.days < CERTIFICATE_DAYS:
        return Check(check=check, result=WARNING, value=value, detail="it expires soon: issue another one")
    missing = "it names no identity" if needs_identity else ""
    detail = " ".join(name.removeprefix("URI:") for name in names) or missing
    return Check(check=check, result=PASS if names or not needs_identity else FAILED, value=value, detail=detail)


def _server(address: str, tls: ssl.SSLContext | None) -> Check:
    """Check one ZooKeeper server. It passes if it accepts connections: the command `srvr` may be disabled."""
    host, _, port = address.rpartition(":") if ":" in address else (address, "", "2181")
    check = f"zookeeper {address}"
    try:
        name = host.strip("[]")
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((name, int(port)), timeout=_CONNECT_S))
            if tls is not None:
                connection = stack.enter_context(tls.wrap_socket(connection, server_hostname=name))
            connection.sendall(b"srvr")
            response = _read_all(lambda: connection.recv(_ANSWER_MAX))
    except (OSError, ValueError) as error:
        detail = f"cannot be reached ({error}): check that it runs, and that no firewall blocks it"
        return Check(check=check, result=FAILED, value="", detail=detail)
    mode = next((line.partition(": ")[2] for line in response.splitlines() if line.startswith("Mode: ")), "")
    return Check(check=check, result=PASS, value=mode, detail="" if mode else "reachable; its mode is not available")


def _read_all(read: Callable[[], bytes]) -> str:
    """Read a response until it ends. Returns the part received if the server is too slow."""
    content = b""
    try:
        while len(content) < _ANSWER_MAX and (more := read()):
            content += more
    except OSError:
        pass
    return content.decode("utf-8", "replace")


def _clock(server: str) -> Check:
    """Compare the clock with that of the server, if one responds."""
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
        date = connection.getresponse().getheader("Date")
        after = time.time()
    except (OSError, http.client.HTTPException) as error:
        detail = f"no server at {server} to compare with ({error}): select one with --server"
        return Check(check="clock", result=PASS, value="", detail=detail)
    finally:
        connection.close()
    theirs = None if date is None else email.utils.parsedate_to_datetime(date)
    if theirs is None:
        return Check(check="clock", result=PASS, value="", detail=f"{server} sends no Date header")
    # The header is rounded down to full seconds: on average it is half a second behind.
    ours = datetime.datetime.fromtimestamp((before + after) / 2, datetime.UTC)
    skew = (ours - theirs).total_seconds() - 0.5
    bad = abs(skew) > SKEW_MAX_S + (after - before)
    detail = f"differs from {server}: check that both synchronise with a time server" if bad else f"against {server}"
    return Check(check="clock", result=WARNING if bad else PASS, value=f"{skew:+.1f}s", detail=detail)
