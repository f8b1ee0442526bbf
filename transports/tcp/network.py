"""The network of kactl's own programs over TCP.

    participant ──dials──▶ controllers, until the active one welcomes it. One link carries everything, both ways:
                           requests of the controller, requests to it, sessions, and messages to other participants.

One object serves all roles of a program. It listens if a controller uses it, or if `listen` is given. Controllers dial
only to verify the address that a participant advertises.
"""

import logging
import random
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Final

import anyio
from opentelemetry import metrics

from kactl.decide.messages.sessions import UNNAMED, Identified, Identify, SessionAnswer
from kactl.model import Endpoint
from kactl.model.errors import (
    BadConfig,
    BadRequest,
    ControllerUnreachable,
)
from kactl.runtime import forks, reloading
from kactl.runtime.addresses import is_wildcard
from kactl.runtime.clock import SystemClock
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.runtime.secret import Secret
from kactl.runtime.tasks import Tasks
from kactl.runtime.user_state import own_secret, secret_path
from kactl.transports.base import ControllerPort, ControlLink, ParticipantPort, SpectatorLink, Transport

from . import handshake
from . import identity as identities
from .acceptance import Acceptance
from .addresses import DEFAULT_LISTEN, PEER_LISTENER, Address, Exposure
from .control_link import TcpControlLink
from .controller_links import ControllerLinks
from .dialing import Dialer
from .endpoint_check import EndpointCheck, PeerNetworks, Wanted, verify
from .handshake import IDENTIFY, VERIFY, Credentials, Hello
from .identity import SECRET_BYTES_MIN, Identity, Role
from .limits import Limits
from .listener import Listener
from .metrics import LinkMetrics
from .rights import EnsureTopics, check_ensure_topics
from .search import ControllerSearch, is_controller
from .served import Served
from .spectator_link import TcpSpectatorLink
from .tls import Tls
from .transport import TcpTransport

log = logger(__name__)

# How often a program that listens looks at the secret of its user.
_POLL_S: Final = 2.0


def _checked(secret: Secret | bytes | str) -> Secret:
    """Returns a secret that is long enough. Raises BadConfig."""
    checked = Secret.of(secret)
    if len(checked) < SECRET_BYTES_MIN:
        raise BadConfig("secret", f"it has {len(checked)} bytes, at least {SECRET_BYTES_MIN} are needed")
    return checked


class TcpNetwork:
    """The `Network` of programs on any hosts.

        tls = kactl.Tls(ca="ca.pem", cert="c.pem", key="c.key")
        async with kactl.Controller(1, store=store, network=kactl.TcpNetwork(listen="10.0.0.1:7373", tls=tls)): ...
        kactl.Participant(2, network=kactl.TcpNetwork(controllers=["10.0.0.1:7373"], tls=tls), handler=Shard)

    Args:
        listen: address to listen on, `host:port`; `[::]:7373` for all of IPv6 and IPv4. Port 0 chooses one, see
            `address`. A controller listens on 127.0.0.1:7373 if it is None; a participant does not listen then.
        advertise: address at which others reach this program; the one that it listens on if None. Participants of
            a program that listens have it in their registrations.
        controllers: addresses of all controllers, for participants. If none are given, it is the one of this process,
            which uses the same object.
        cluster: name of the cluster. Programs of different clusters do not connect.
        tls: the certificate of this program; None for plain text, which is limited to this host.
        secret: shared by all programs, at least 16 bytes. A program that knows it may claim any identity. If there is
            neither a secret nor TLS, programs of one user on one host share a secret in their state folder.
        allow_plaintext: let a network with a secret and without TLS leave this host. It is logged at every start.
        verify_endpoint: whether a controller refuses a participant that it does not find at the address that the
            participant advertises. If not, that is a warning.
        peer_networks: networks of addresses that participants may advertise, as `10.0.0.0/8`, besides the addresses
            that they connect from.
        ensure_topics: ids and names of the participants that may create topics by `ensure_topic`, by the topics' names;
            in both names `*` and `?` are wildcards: `{"orders-*": [1, "worker-*"]}`. None: each participant may create
            any.
        identify: returns the identity in a certificate, in place of the URI `kactl://<cluster>/<role>/<name>`.
        limits: see `Limits`.
        meter_provider: of OpenTelemetry; the host program's if None.

    Raises:
        BadConfig: an argument is invalid; or, when the network is opened, the address cannot be used.
    """

    def __init__(
        self,
        *,
        listen: str | None = None,
        advertise: str | None = None,
        controllers: Sequence[str] = (),
        cluster: str = "kactl",
        tls: Tls | None = None,
        secret: Secret | bytes | str | None = None,
        allow_plaintext: bool = False,
        verify_endpoint: bool = True,
        peer_networks: Collection[str] = (),
        ensure_topics: EnsureTopics | None = None,
        identify: identities.Identify | None = None,
        limits: Limits | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        secret = None if secret is None else _checked(secret)
        if isinstance(controllers, str):
            raise BadConfig("controllers", f"{controllers!r} is one address: give a list of them")
        if not cluster:
            raise BadConfig("cluster", "it is empty: name the cluster")
        self.cluster = cluster
        self.limits = limits or Limits()
        self.verify_endpoint = verify_endpoint
        self._peer_networks = PeerNetworks(peer_networks)
        check_ensure_topics(ensure_topics)
        self._ensure_topics = ensure_topics
        self._listen = None if listen is None else Address.parse(listen, "listen")
        self._advertise = None if advertise is None else Address.parse(advertise, "advertise")
        self._controllers = [Address.parse(text, "controllers") for text in controllers]
        self._tls = tls
        self._metrics = LinkMetrics(meter_provider)
        self._credentials = Credentials(cluster, secret, identify)
        self._shares_own_secret = tls is None and secret is None
        self._exposure = Exposure(tls is not None, secret is not None, allow_plaintext)
        self._dialer = Dialer(
            tls=tls,
            exposure=self._exposure,
            credentials=self._credentials,
            limits=self.limits,
            metrics=self._metrics,
            renewed=self._renew_own_secret,
        )
        self._rng = random.Random()
        self._served = Served(SystemClock())
        self._listener: Listener | None = None
        self._listening = 0  # sides that need the listener
        self._tasks = Tasks("the network")
        self._lock = anyio.Lock()
        self._instances: dict[int, ControllerLinks] = {}
        self._ports: dict[str, ParticipantPort] = {}
        self._acceptance = Acceptance(cluster, self.limits, lambda: self._credentials, self._instances, self._ports)
        self._home: forks.Home | None = None  # the process in which it is used

    @property
    def certificate(self) -> Tls | None:
        """The certificate of this program; None without TLS."""
        return self._tls

    def reload(self, *, secret: Secret | bytes | str | None = None) -> None:
        """Read the files of TLS again, and replace the secret.

        If the secret, the authority or its list of revoked certificates has changed, participants and spectators
        connect again, so that they prove their identities again. Otherwise links that are open stay.

        Raises:
            BadConfig: a file cannot be used, the secret is too short, or there was none before. Nothing changes.
        """
        if secret is not None:
            if self._shares_own_secret or self._credentials.secret is None:
                raise BadConfig("secret", "the network has none, so it cannot be replaced: start it with one")
            secret = _checked(secret)
        if self._tls is not None:
            verifying = self._tls.verifying
            self._tls.reload()
            if verifying not in (b"", self._tls.verifying):
                self._verify_again("the authority or its list of revoked certificates has changed")
        if secret is not None:
            self._replace_secret(secret)

    def _replace_secret(self, secret: Secret) -> None:
        if secret != self._credentials.secret:
            self._credentials = self._dialer.credentials = self._credentials._replace(secret=secret)
            self._verify_again("the shared secret has changed")

    def _verify_again(self, reason: str) -> None:
        for links in self._instances.values():
            links.verify_again(reason)

    def _renew_own_secret(self) -> None:
        """Without a secret of the program and TLS, use the one in the state folder of its user, if it has any.

        Raises:
            BadConfig: it cannot be used.
        """
        if self._shares_own_secret and (secret := own_secret()) is not None:
            self._replace_secret(secret)

    async def _watch_own_secret(self) -> None:
        """Renew it when it has changed, until cancelled. Links that were opened with an earlier one end."""
        conditions = Conditions(log)
        while True:
            await reloading.pause(_POLL_S)
            try:
                self._renew_own_secret()
                conditions.end("", "the secret of the network can be read again")
            except BadConfig as error:
                text = "the secret of the network cannot be read, and the earlier one stays in use: %s"
                conditions.add("", logging.ERROR, text, error, kind=str(error))

    # -- addresses -----------------------------------------------------------------------------------------------------

    @property
    def insecure(self) -> str:
        """Why every program of this host can take part in the cluster of this network; empty if none can."""
        if self._listener is None or self._tls is not None or self._credentials.secret is not None:
            return ""
        return (
            f"{self._listener.address} asks for no secret, because {secret_path()} cannot be written: give secret= "
            "(secret-file of [network]), or set XDG_STATE_HOME to a folder of this user"
        )

    @property
    def address(self) -> str | None:
        """The address that this program listens on; None while it does not listen."""
        return None if self._listener is None else str(self._listener.address)

    @property
    def advertised(self) -> str | None:
        """The address at which others reach this program; None while it does not listen."""
        if self._listener is None:
            return None
        return str(self._advertise or self._listener.address)

    @property
    def controller_address(self) -> str:
        """The address that controllers of this program store for others; empty if they do not listen, or if it would be
        of no use to others."""
        if self._listener is None:
            return ""
        address = self._advertise or self._listener.address
        return "" if is_wildcard(address.host) else str(address)

    # -- Network -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def controller_side(self, port: ControllerPort) -> AsyncIterator[Transport]:
        """See `Network`.

        Raises:
            BadConfig: the address cannot be listened on, or the secret cannot be used.
        """
        self._check_process()
        async with self._listens():
            check = EndpointCheck(port, self.verify, required=self.verify_endpoint)
            links = ControllerLinks(
                port, limits=self.limits, metrics=self._metrics, endpoints=check, ensure_topics=self._ensure_topics
            )
            self._instances[port.node_id] = links
            links.open()
            try:
                yield TcpTransport(links)
            finally:
                if self._instances.get(port.node_id) is links:
                    del self._instances[port.node_id]
                with anyio.CancelScope(shield=True):
                    await links.close()

    @asynccontextmanager
    async def participant_side(
        self, port: ParticipantPort, *, controllers: Sequence[str] = ()
    ) -> AsyncIterator[ControlLink]:
        """See `Network`. The link is opened in the background.

        Raises:
            BadRequest: no addresses of controllers are known.
            BadConfig: the address cannot be listened on, one of the addresses has another form, or a file of TLS or the
                secret cannot be used.
        """
        addresses = self._addresses_of(controllers)
        async with nullcontext() if self._listen is None else self._listens(), self._linked(port, addresses) as link:
            yield link

    async def identify(self, request: Identify, *, controllers: Sequence[str] = ()) -> SessionAnswer:
        """See `ParticipantNetwork`. One search for the active controller."""
        addresses = self._addresses_of(controllers)

        def hello() -> Hello:
            return handshake.hello(
                Identity(self.cluster, Role.PARTICIPANT, request.name or UNNAMED),
                incarnation=request.start,
                purpose=IDENTIFY,
                silence_ms=self.limits.silence_ms,
                broker=request.broker,
            )

        search = ControllerSearch(self._dialer, addresses=addresses, hello=hello, rng=self._rng, clock=SystemClock())
        found = await search.find()
        if found is None:
            refusal = None if search.refusal is None else type(search.refusal)
            raise (refusal or ControllerUnreachable)(search.why_not())
        found.link.close("the id is known")
        return Identified(found.broker)

    @asynccontextmanager
    async def spectator_side(self, *, controllers: Sequence[str] = ()) -> AsyncIterator[SpectatorLink]:
        """See `Network`. The link is opened in the background.

        Raises:
            BadRequest: no addresses of controllers are known.
            BadConfig: one of the addresses has another form, or a file of TLS or the secret cannot be used.
        """
        addresses = self._addresses_of(controllers)
        link = TcpSpectatorLink(cluster=self.cluster, dialer=self._dialer, addresses=addresses, rng=self._rng)
        link.open()
        try:
            yield link
        finally:
            with anyio.CancelScope(shield=True):
                await link.aclose()

    def _check_process(self) -> None:
        """Raises ProcessForked if the network was in use when this process was forked."""
        if self._home is None:
            self._home = forks.home()
        self._home.check("the network")

    def _addresses_of(self, controllers: Sequence[str]) -> Callable[[], Sequence[Address]]:
        """Returns a function for the addresses of controllers: those given, and those that this network knows."""
        self._check_process()
        given = [Address.parse(text, "controllers") for text in controllers]
        self._check_controllers(given)
        self._renew_own_secret()
        return lambda: list(dict.fromkeys([*given, *self._controller_addresses()]))

    def _check_controllers(self, given: Sequence[Address]) -> None:
        if not (given or self._controllers or self._instances or self._listen):
            raise BadRequest("controllers", "the network knows no controller: give the addresses of all of them")
        for address in (*given, *self._controllers):
            if not address.port:
                raise BadConfig("controllers", f"{address} has no port: write the one that the controller listens on")
        if self._tls is not None:
            self._tls.client_context()  # an invalid file is reported now

    @asynccontextmanager
    async def _linked(
        self, port: ParticipantPort, addresses: Callable[[], Sequence[Address]]
    ) -> AsyncIterator[ControlLink]:
        link = TcpControlLink(
            port,
            cluster=self.cluster,
            dialer=self._dialer,
            addresses=addresses,
            peer=self._peer_endpoint(),
            rng=self._rng,
            served=self._served,
        )
        self._ports[str(port.broker)] = port
        link.open()
        try:
            yield link
        finally:
            if self._ports.get(str(port.broker)) is port:
                del self._ports[str(port.broker)]
            with anyio.CancelScope(shield=True):
                await link.aclose()

    def _controller_addresses(self) -> Sequence[Address]:
        if self._controllers or self._listener is None:
            return self._controllers
        own = self._listener.address
        return [own._replace(host="127.0.0.1") if is_wildcard(own.host) else own]

    def _peer_endpoint(self) -> Endpoint | None:
        """Returns where other participants connect to those of this program; None if they cannot."""
        if self._listen is None or self._listener is None:
            return None
        host, port = self._advertise or self._listener.address
        if self._instances and self._advertise is None and is_wildcard(host):
            return None  # a controller listens there, which needs no address of its own
        return Endpoint(PEER_LISTENER, host, port, "PLAINTEXT" if self._tls is None else "SSL")

    @asynccontextmanager
    async def _listens(self) -> AsyncIterator[None]:
        """Listen until the last of the blocks that need it has ended."""
        async with self._lock:
            if self._listener is None:
                self._renew_own_secret()
                listener = Listener(
                    self._listen or Address.parse(DEFAULT_LISTEN, "listen"),
                    tls=self._tls,
                    exposure=self._exposure,
                    limits=self.limits,
                    metrics=self._metrics,
                    accepted=self._acceptance.accepted,
                    refused=self._acceptance.refused,
                )
                await listener.open()
                self._listener = listener
                if self.insecure:
                    log.warning("the network is insecure: %s", self.insecure)
                if self._shares_own_secret:
                    self._tasks.spawn(self._watch_own_secret())
            self._listening += 1
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                async with self._lock:
                    self._listening -= 1
                    if not self._listening:
                        listener, self._listener = self._listener, None
                        await self._tasks.close()
                        await listener.close()

    # -- endpoints -----------------------------------------------------------------------------------------------------

    async def verify(self, broker: int, incarnation: bytes, host: str, port: int, peer: str, claim: str = "") -> None:
        """Connect to the address that a participant advertises, and compare its registration.

        Args:
            peer: the address that the participant connects from.
            claim: its identity, if that is not the id.

        Raises:
            EndpointUnreachable: others cannot use the address, nothing listens there, or another program does.
        """
        own = self._controller_identity()
        wanted = Wanted(Identity(self.cluster, Role.PARTICIPANT, claim or str(broker)), broker, incarnation)
        await verify(self._dialer, own, wanted, host, port, lambda hosts: self._peer_networks.permitted(hosts, peer))

    async def probe(self, address: str, own: Identity) -> Identity:
        """Connect to a controller without using it. Returns its identity.

        Args:
            own: the identity of this program.

        Raises:
            KactlError: it cannot be reached, or has another certificate, secret, version or cluster.
        """
        hello = handshake.hello(own, purpose=VERIFY, silence_ms=self.limits.silence_ms)
        link, theirs, _ = await self._dialer.dial(Address.parse(address, "address"), hello, is_controller)
        link.close("the address has been probed")
        await link.wait_lost()
        return theirs.identity

    def _controller_identity(self) -> Identity:
        if not self._instances:
            raise ControllerUnreachable("no controller of this process uses this network")
        return Identity(self.cluster, Role.CONTROLLER, str(next(iter(self._instances))))
