"""Admin server: the application of the admin API at an address of its own, with limits for its connections.

Clients need a token, or use the Unix socket as the user that the server runs as. A page in a browser is a client, too:
`origin` rejects requests of other servers' pages, and changes need a JSON content type, which a form cannot send.
"""

import contextlib
import functools
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

from kactl.actors.system import Controller
from kactl.config.settings import Config
from kactl.config.values import Listen
from kactl.model.errors import BadConfig
from kactl.participant.group import Participants
from kactl.runtime import forks
from kactl.runtime.addresses import host_and_port
from kactl.runtime.background import Background
from kactl.runtime.front_door import BACKLOG
from kactl.runtime.listening import listening_sockets
from kactl.runtime.logs import logger
from kactl.runtime.private_files import make_folder
from kactl.runtime.reloading import Reloads
from kactl.runtime.threads import run_in_thread
from kactl.security.tls.server_tls import ServerTls
from kactl.telemetry.metrics import Reading
from kactl.telemetry.past_states import PastStates

from . import exposure, limits
from .acceptor import Acceptor
from .access import Policy, ProbePolicy, ServerPolicy
from .audit_file import AuditFile
from .audit_trail import AuditTrail
from .connections import Connection, observe
from .exposure import API
from .gate import Gate
from .host import Host
from .identity import unix_socket
from .identity.certificates import Certificates
from .identity.credentials import Credentials
from .identity.places import Places, places_of
from .identity.run_file import RunFile, base_name, write
from .limits import Capacity
from .mounting import mountable, openapi_document, response, unreadable
from .security_watch import SecurityWatch
from .served_certificates import ServedCertificates
from .service import Surroundings

log = logger(__name__)

# Streams end at once when the server stops; other requests get this long.
SHUTDOWN_TIMEOUT_S: Final = 5
_SERVER: Final = {"Server": "kactl"}


class Address(NamedTuple):
    """The address at which the server can be reached."""

    host: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{host_and_port(self.host, self.port)}"


@contextlib.asynccontextmanager
async def serve(
    controller: Controller,
    config: Config,
    *,
    participants: Participants | None = None,
    render_metrics: Callable[[], bytes] | None = None,
    capacity: Capacity | None = None,
    past: PastStates | None = None,
    certificates: ServedCertificates | None = None,
    reloads: Reloads | None = None,
) -> AsyncIterator[Address]:
    """Serve the admin API while the block runs, in the event loop of the controller.

    Args:
        controller: already entered.
        participants: the brokers of this process; the API can kill and restart them.
        render_metrics: from `telemetry_for_server`; the controller uses its meter provider.
        capacity: limit of connections; None for the number that the descriptors of this process allow.
        past: earlier states of the cluster, for reads of a past time.
        certificates: those of other interfaces of the process.
        reloads: the files of other interfaces of the process.

    Raises:
        BadConfig: the address cannot be bound, others could reach it in clear text, credentials cannot be read, or
            there are too few file descriptors.
    """
    if capacity is None:
        capacity = _capacity(config)
    watch = SecurityWatch(controller, config, await run_in_thread(exposure.checked, config), certificates)
    tls = _tls(config)
    if tls is not None:
        watch.certificates.add(API, tls)
    places = await run_in_thread(places_of, config)  # it looks up names
    credentials = Credentials(
        tokens=places.tokens,
        local=places.local,
        key=await run_in_thread(_key_file, config, places),
        clock=controller.clock,
    )
    await _load(credentials, places)
    reloads = Reloads() if reloads is None else reloads
    reloads.add(credentials, *([] if tls is None else [tls]))
    trail = await run_in_thread(_trail, config)
    host = Host(
        controller,
        Surroundings(
            participants=participants,
            render_metrics=render_metrics,
            document=openapi_document(""),
            capacity=capacity,
            credentials=credentials,
            exposure=watch.exposure,
            security=watch,
            past=past,
            trail=trail,
        ),
        config=config,
    )
    gate = Gate(capacity)
    accepted = Certificates.of(config.api, config.cluster, tls)
    policy = ServerPolicy(config.api, credentials, accepted, controller.budget)
    if tls is not None:
        # Clients open another connection without an error.
        tls.on_verification_changed = functools.partial(
            gate.close_idle, lambda connection: not accepted.still_count(connection.transport)
        )
    controller.telemetry.observe(gate.readings() | _readings(host, reloads, trail) | watch.readings())
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(trail.close)
        make = await stack.enter_async_context(_connections(host, policy, gate))
        acceptor = Acceptor(
            await _bound("api.listen", config.api.listen, config.api.address),
            gate,
            make,
            None if tls is None else lambda: tls.context,
        )
        stack.push_async_callback(acceptor.stop)
        tasks = await stack.enter_async_context(Background("the tokens of the admin API"))
        tasks.start_soon(credentials.run, name="tokens")
        tasks.start_soon(trail.run, name="audit trail")
        if tls is not None:
            tasks.start_soon(tls.run, name="certificate")
        watch.start(tasks)
        host.find()  # it begins to watch the progress of reassignments
        if config.api.probe_address is not None:
            await stack.enter_async_context(_probes(host, config, config.api.probe_address))
        acceptor.start()
        host_name, port, *_ = acceptor.addresses[0]
        address = Address(host_name, port, "http" if tls is None else "https")
        unix = _unix_socket(config, places, address)
        if unix is not None:
            beside = Acceptor([unix], gate, make)
            stack.push_async_callback(beside.stop)
            beside.start()
        stack.enter_context(_listed(places, address, unix))
        log.info("the admin API listens at %s", address.url)
        yield address


@contextlib.asynccontextmanager
async def _probes(host: Host, config: Config, address: Listen) -> AsyncIterator[None]:
    """Serve probes at an address of their own while the block runs: in clear text, and with connections of their own.

    Raises:
        BadConfig: the address cannot be bound.
    """
    gate = Gate(Capacity(connections=limits.PROBE_ADDRESS_CONNECTIONS, probes=0))
    async with _connections(host, ProbePolicy(config.api), gate, probes_only=True) as make:
        sockets = await _bound("api.probe-listen", config.api.probe_listen, address)
        acceptor = Acceptor(sockets, gate, make)
        try:
            acceptor.start()
            name, port, *_ = acceptor.addresses[0]
            log.info("probes are served at %s", Address(name, port).url)
            yield
        finally:
            await acceptor.stop()


@contextlib.asynccontextmanager
async def _connections(
    host: Host, policy: Policy, gate: Gate, *, probes_only: bool = False
) -> AsyncIterator[Callable[[str, int | None], Connection]]:
    """Run the application; yields a function that makes the protocol of a connection."""
    runner = web.AppRunner(
        mountable(host, policy, headers=_SERVER, probes_only=probes_only),
        access_log=None,
        handle_signals=False,
        shutdown_timeout=SHUTDOWN_TIMEOUT_S,
    )
    await runner.setup()
    server = runner.server
    assert server is not None, "made by setup"
    observe(server)

    def refuse(status: int, reason: str, error_id: str) -> web.Response:
        return response(unreadable(status, reason, error_id), instance="", headers=_SERVER)

    try:
        yield lambda peer, uid: Connection(server, gate, refuse, peer=peer, uid=uid)
    finally:
        await runner.cleanup()
        if not probes_only:
            host.close()


def _tls(config: Config) -> ServerTls | None:
    """Returns the TLS of the API; None without a certificate.

    Raises:
        BadConfig: a file cannot be used.
    """
    tls = config.api.tls
    if not tls.cert:
        return None
    return ServerTls(
        "api.tls", cert=tls.cert, key=tls.key, client_auth=tls.client_auth, client_ca=tls.client_ca, crl=tls.crl
    )


def _trail(config: Config) -> AuditTrail:
    """Returns the audit trail, with its files if they are wanted.

    Raises:
        BadConfig: they cannot be written.
    """
    wanted = config.audit
    if not wanted.folder:
        if wanted.required:
            raise BadConfig("audit.required", "there is no file that could be required: name audit.folder")
        return AuditTrail()
    file = AuditFile(Path(wanted.folder), bytes_max=wanted.segment_bytes, count_max=wanted.segments)
    return AuditTrail(file=file, required=wanted.required)


def _readings(host: Host, reloads: Reloads, trail: AuditTrail) -> dict[str, Reading]:
    """Returns the gauges for `kactl.telemetry.metrics`."""

    def streams() -> int:
        service = host.find()
        return 0 if service is None else service.streams

    return {
        "kactl.sse.client.count": lambda: [(streams(), {})],
        "kactl.security.reload_failed": lambda: [(int(reloads.has_failed), {})],
        "kactl.audit.lost.count": lambda: [(trail.lost, {})],
    }


async def _load(credentials: Credentials, places: Places) -> None:
    """Read the tokens; makes the folder of the local one."""

    def load() -> None:
        if places.local is not None:
            make_folder(places.local.parent, "security.folder")
        credentials.load()

    await run_in_thread(load)


def _key_file(config: Config, places: Places) -> Path | None:
    """Returns the file with the key of tickets; None if there is no page, or no place for it.

    Raises:
        BadConfig: others can use the folder.
    """
    if not config.api.dashboard:
        return None
    try:
        make_folder(places.folder, "security.folder")
    except BadConfig as error:
        if places.local is not None or places.folder.exists():
            raise
        log.warning("logins of the dashboard end with this process: %s", error)
        return None
    return places.key


async def _bound(key: str, text: str, wanted: Listen) -> list[socket.socket]:
    try:
        listen = functools.partial(listening_sockets, *wanted, backlog=BACKLOG)
        return await run_in_thread(listen)
    except OSError as error:
        reason = f"{text} cannot be listened on ({error.strerror}): choose another address or port"
        raise BadConfig(key, reason) from None


def _unix_socket(config: Config, places: Places, address: Address) -> socket.socket | None:
    """Returns the listening Unix socket. The API also works without it, so that a failure is only logged."""
    wanted = config.api.socket
    if wanted == "off" or not unix_socket.is_supported():
        return None
    path = places.run / f"{base_name(address.host, address.port)}.sock" if wanted == "auto" else Path(wanted)
    try:
        make_folder(places.run, "security.folder")
        return unix_socket.bound(path)
    except (OSError, BadConfig) as error:
        log.warning("the admin API has no Unix socket: %s cannot be used: %s", path, error)
        return None


@contextlib.contextmanager
def _listed(places: Places, address: Address, unix: socket.socket | None) -> Iterator[None]:
    """Write the run file, and remove it and the socket at the end. Without it, programs need an option."""
    path = "" if unix is None else os.path.abspath(unix.getsockname())
    run = RunFile(
        url=address.url,
        pid=os.getpid(),
        socket=path,
        token_file="" if places.local is None else os.path.abspath(places.local),
        tokens=os.path.abspath(places.tokens),
    )
    written, here = None, forks.home()
    try:
        written = write(places.run, base_name(address.host, address.port), run)
    except (OSError, BadConfig) as error:
        log.warning("commands need --token-file, because no run file can be written: %s", error)
    try:
        yield
    finally:
        for file in (path, written):
            if file and not here.left:
                with contextlib.suppress(OSError):
                    os.unlink(file)


def _capacity(config: Config) -> Capacity:
    others = config.kafka.max_connections if config.kafka.listeners else 0
    others += limits.PROBE_ADDRESS_CONNECTIONS if config.api.probe_listen else 0
    descriptors = limits.descriptors_max()
    capacity = limits.capacity(descriptors, others=others)
    if capacity != Capacity():
        log.warning(
            "this process may open %d files (ulimit -n), so the admin API accepts %d connections instead of %d",
            descriptors, capacity.connections, limits.CONNECTIONS_MAX,
        )  # fmt: skip
    return capacity
