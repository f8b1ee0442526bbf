"""The network of participants, as `[network]` configures it."""

import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from opentelemetry.metrics import MeterProvider

from kactl.admin.exposure import NETWORK
from kactl.admin.served_certificates import ServedCertificates
from kactl.config.settings import Config, NetworkConfig
from kactl.decide.messages.sessions import Identify, SessionAnswer
from kactl.model import Broker
from kactl.model.errors import BadConfig
from kactl.runtime import reloading
from kactl.runtime.background import Background
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.runtime.reloading import Reloads
from kactl.runtime.secret import Secret
from kactl.runtime.threads import run_in_thread
from kactl.transports.base import (
    Connection,
    ControllerPort,
    ControlLink,
    Network,
    ParticipantPort,
    SpectatorLink,
    Transport,
)
from kactl.transports.memory import MemoryHub
from kactl.transports.tcp.identity import Identity, Role, identities
from kactl.transports.tcp.network import TcpNetwork
from kactl.transports.tcp.tls import Tls

from .secret_files import read_secret

log = logger(__name__)

POLL_S: Final = 10.0


def network_of(config: Config, meter_provider: MeterProvider | None = None, *, participants: int = 0) -> Network:
    """Returns the network of a server: that of its process, if participants elsewhere are not configured.

    Args:
        participants: that run in the server, with the ids from 1 on.

    Raises:
        BadConfig: a file cannot be read, or the certificate does not name this server.
    """
    if not config.network.listen:
        return MemoryHub()
    if config.network.cert:
        _check_identities(config, participants)
    return tcp_network(config, meter_provider)


def _check_identities(config: Config, participants: int) -> None:
    """Check that the certificate of `[network]` names all programs of this server, which no peer accepts otherwise."""
    section = config.network
    tls = _tls(section)
    try:
        tls.reload()
    except BadConfig as error:
        raise BadConfig(f"network.{error.field.removeprefix('tls.')}", error.reason) from None
    try:
        certificate = tls.own_certificate()
    except BadConfig as error:
        # The certificate can be renewed while the server runs, which has other tasks.
        log.error("[network] does not work until its certificate is replaced: %s", error)
        return
    named = identities(certificate, None)
    needed = [(Role.CONTROLLER, config.node_id), *((Role.PARTICIPANT, number + 1) for number in range(participants))]
    if all(Identity(config.cluster, role, str(number)) in named for role, number in needed):
        return
    listed = ", ".join(map(str, named)) or "no identity"
    arguments = " ".join(f"{role.value}/{number}" for role, number in needed)
    remedy = f"make one with `kactl pki issue DIR {arguments}`" + (", or run no participants" if participants else "")
    raise BadConfig(
        "network.cert",
        f"{section.cert} names {listed}, and not all that runs here in cluster {config.cluster}: {remedy}",
    )


def _tls(section: NetworkConfig) -> Tls:
    return Tls(ca=section.ca, cert=section.cert, key=section.key, crl=section.crl or None)


def tcp_network(config: Config, meter_provider: MeterProvider | None = None) -> TcpNetwork:
    """Returns the network that `[network]` describes. Raises BadConfig if the secret cannot be read."""
    section = config.network
    return TcpNetwork(
        listen=section.listen or None,
        advertise=section.advertise or None,
        controllers=section.controllers,
        cluster=config.cluster,
        tls=_tls(section) if section.cert else None,
        secret=_secret(config),
        allow_plaintext=NETWORK in config.security.allow_insecure,
        verify_endpoint=section.verify_endpoint,
        peer_networks=section.peer_networks,
        ensure_topics=section.ensure_topics,
        meter_provider=meter_provider,
    )


def certificates_of(network: Network | None) -> ServedCertificates:
    """Returns the certificates of a process: that of the network, if it has one. Others are added by their servers."""
    certificates = ServedCertificates()
    if isinstance(network, TcpNetwork) and network.certificate is not None:
        certificates.add(NETWORK, network.certificate)
    return certificates


def _secret(config: Config) -> Secret | None:
    path = config.network.secret_file
    return read_secret(path, "network.secret-file") if path else None


@contextlib.asynccontextmanager
async def renewing(config: Config, network: Network, reloads: Reloads | None = None) -> AsyncIterator[None]:
    """In the block, use renewed certificates and a changed secret of `[network]` for new links.

    Args:
        reloads: receives these files.
    """
    if not isinstance(network, TcpNetwork):
        yield
        return
    files = NetworkFiles(config, network)
    if reloads is not None:
        reloads.add(files)
    async with Background("the files of the network") as tasks:
        tasks.start_soon(files.run, name="files of the network")
        yield


class NetworkFiles:
    """The files of `[network]`.

    Attributes:
        reload_failed: they have changed, and cannot be used; the previous ones stay.
    """

    def __init__(self, config: Config, network: TcpNetwork) -> None:
        self._config = config
        self._network = network
        self._conditions = Conditions(log)
        self.reload_failed = False

    async def run(self) -> None:
        """Load the files when they have changed, or cannot be used yet, until cancelled."""
        used = await run_in_thread(_versions, self._config)
        while True:
            await reloading.pause(POLL_S)
            found = await run_in_thread(_versions, self._config)
            if found == used:
                self._used()
                continue
            try:
                self._network.reload(secret=_secret(self._config))
            except BadConfig as error:
                text = "the files of [network] have changed, and the earlier ones stay in use: %s"
                self._conditions.add("", logging.ERROR, text, error, kind=str(error))
                self.reload_failed = True
            else:
                used = found
                self._used()
                log.info("new links use the changed files of [network]")

    def _used(self) -> None:
        self.reload_failed = False
        self._conditions.end("", "the files of [network] can be used again")


def _versions(config: Config) -> list[reloading.FileVersion]:
    """Returns what distinguishes the present contents of the files; None for one that cannot be read."""
    section = config.network
    files = (section.ca, section.crl, section.cert, section.key, section.secret_file)
    return [reloading.version_of(path) for path in files if path]


class BesideKafka:
    """Network of a controller of Kafka brokers and participants: requests to brokers take another transport."""

    def __init__(self, network: Network, brokers: Transport) -> None:
        self._network = network
        self._brokers = brokers

    @property
    def insecure(self) -> str:
        """See `TcpNetwork`."""
        return getattr(self._network, "insecure", "")

    @contextlib.asynccontextmanager
    async def controller_side(self, port: ControllerPort) -> AsyncIterator[Transport]:
        async with self._network.controller_side(port) as participants:
            yield _Routed(participants, self._brokers)

    async def identify(self, request: Identify, *, controllers: Sequence[str] = ()) -> SessionAnswer:
        return await self._network.identify(request, controllers=controllers)

    def participant_side(
        self, port: ParticipantPort, *, controllers: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[ControlLink]:
        return self._network.participant_side(port, controllers=controllers)

    def spectator_side(self, *, controllers: Sequence[str] = ()) -> AbstractAsyncContextManager[SpectatorLink]:
        return self._network.spectator_side(controllers=controllers)


class _Routed:
    """Transport that distinguishes participants by the id of their registration, which Kafka brokers do not have."""

    def __init__(self, participants: Transport, brokers: Transport) -> None:
        self._participants = participants
        self._brokers = brokers

    def connect(self, broker: Broker) -> Connection:
        return (self._participants if broker.incarnation else self._brokers).connect(broker)
