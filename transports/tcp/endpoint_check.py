"""Check of the addresses that participants advertise, before a controller registers them."""

import ipaddress
import logging
import socket
import weakref
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

import anyio

from kactl.decide.machines.remote_sessions import why_unusable
from kactl.decide.messages.sessions import ParticipantLink, Register, SessionRequest, VerifyEndpoint
from kactl.model import Endpoint
from kactl.model.errors import BadConfig, EndpointUnreachable, KactlError, NotAuthorized, ProtocolMismatch
from kactl.runtime.addresses import plain_address
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.runtime.resolver import Resolved
from kactl.transports.base import ControllerPort

from . import handshake
from .addresses import PEER_LISTENER, Address
from .dialing import Dialer
from .handshake import VERIFY, Hello
from .identity import Identity

log = logger(__name__)

# Connections that one controller opens at a time: all participants may register again at the same moment.
_DIALS_MAX: Final = 32
# Of these, connections for one participant, whatever it advertises. A start does not wait for the check of an earlier
# start whose host does not answer.
DIALS_EACH_MAX: Final = 2


class Verify(Protocol):
    """Connects to an address that a peer has named, and compares the participant there. Raises EndpointUnreachable."""

    async def __call__(
        self, broker: int, incarnation: bytes, host: str, port: int, peer: str, claim: str, /
    ) -> None: ...


class PeerNetworks:
    """Addresses that participants may name as their own: those that they connect from, and those of some networks.

    Otherwise a participant could have the controller connect to any address that is reached from there.

    Raises:
        BadConfig: one of the networks has another form.
    """

    def __init__(self, networks: Iterable[str]) -> None:
        if isinstance(networks, str):
            raise BadConfig("peer_networks", f"{networks!r} is one network: give a list of them")
        self._networks = [_network(text) for text in networks]

    def permitted(self, hosts: Iterable[Resolved], peer: str) -> list[Resolved]:
        """Returns those of some addresses that a peer may name. Raises NotAuthorized if there is none."""
        asked = [resolved.host for resolved in hosts]
        found = [resolved for resolved in hosts if self._permits(plain_address(resolved.host), peer)]
        if not found:
            raise NotAuthorized(
                f"a participant at {peer} must not name {', '.join(asked)} as its own: add the network to "
                "peer-networks of [network] (peer_networks=), or let it connect from there"
            )
        return found

    def _permits(self, address: str, peer: str) -> bool:
        if address == peer or (_is_of_this_host(peer) and _is_of_this_host(address)):
            return True
        return any(ipaddress.ip_address(address) in network for network in self._networks)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise BadConfig("peer_networks", f"{text!r} is not a network: write it as 10.0.0.5 or 10.0.0.0/24") from None


def _is_of_this_host(address: str) -> bool:
    """Returns whether an address is one of this host, which has several."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


class Wanted(NamedTuple):
    """The participant that has to be found at an address: its identity, id, and start."""

    identity: Identity
    broker: int
    incarnation: bytes


async def verify(
    dialer: Dialer,
    own: Identity,
    wanted: Wanted,
    host: str,
    port: int,
    choose: Callable[[list[Resolved]], list[Resolved]],
) -> None:
    """Connect to the address that a participant advertises, and compare its registration.

    Args:
        own: the identity of the controller.
        choose: returns those of the addresses of a host that may be connected to.

    Raises:
        EndpointUnreachable: others cannot use the address, nothing listens there, or another program does.
    """
    if (unusable := why_unusable(Endpoint(PEER_LISTENER, host, port))) is not None:
        raise EndpointUnreachable(host, port, unusable)
    hello = handshake.hello(own, purpose=VERIFY, target=str(wanted.broker), silence_ms=dialer.limits.silence_ms)
    try:
        link, theirs, _ = await dialer.dial(Address(host, port), hello, _is(wanted.identity), choose=choose)
    except KactlError as error:
        raise EndpointUnreachable(host, port, _not_found(wanted.broker)) from error
    link.close("the address has been verified")
    if theirs.incarnation != wanted.incarnation:
        another = f"another start of participant {wanted.broker} runs there: stop it, or change advertise="
        raise EndpointUnreachable(host, port, _not_found(wanted.broker)) from ProtocolMismatch(another)


def _not_found(broker: int) -> str:
    """Returns the same sentence for every reason: a participant must not find out what listens elsewhere."""
    return (
        f"participant {broker} was not found there, or must not name that address: change advertise=, or see the "
        "reason in the controller's log"
    )


def _is(wanted: Identity) -> Callable[[Hello], str | None]:
    def check(hello: Hello) -> str | None:
        return None if hello.identity == wanted else f"it is {hello.identity}, and not {wanted}"

    return check


class EndpointCheck:
    """Checks of one controller instance.

    Args:
        required: whether a participant that is not found at its address is refused. If not, the failure is a warning.
    """

    def __init__(self, port: ControllerPort, verify: Verify, *, required: bool) -> None:
        self._port = port
        self._verify = verify
        self._required = required
        self._dials = anyio.CapacityLimiter(_DIALS_MAX)
        self._conditions = Conditions(log)
        # By broker, while a check of it runs or waits.
        self._of_broker: weakref.WeakValueDictionary[int, anyio.Semaphore] = weakref.WeakValueDictionary()

    async def before(self, request: SessionRequest, link: ParticipantLink) -> None:
        """Check the address in a Register or a VerifyEndpoint.

        Raises:
            EndpointUnreachable: another program or none is there, and the check is required.
        """
        if not isinstance(request, Register | VerifyEndpoint) or request.peer is None:
            return
        if self._port.standby() is not None:
            return
        turns = self._of_broker.setdefault(link.broker, anyio.Semaphore(DIALS_EACH_MAX))
        try:
            async with turns, self._dials:
                peer = link.address.rpartition(":")[0].strip("[]")
                await self._verify(
                    link.broker, link.incarnation, request.peer.host, request.peer.port, peer, link.claim
                )
        except EndpointUnreachable as error:
            # Shown for a registration that exists: a session with the store may have begun without a controller.
            # The cause is for operators: it would tell the participant what else listens there.
            reason = str(error) if error.__cause__ is None else f"{error}: {error.__cause__}"
            self._port.endpoint_failed(link, reason)
            text = "broker %d at %s is registered, but others cannot connect to it: %s"
            if self._required:
                text = "the registration of broker %d from %s is refused: %s"
            host = link.address.rpartition(":")[0]  # each link has another port
            self._conditions.add(link.broker, logging.WARNING, text, link.broker, host, reason)
            if self._required:
                raise
        else:
            self._conditions.end(link.broker, "others can connect to broker %d", link.broker)
            self._port.endpoint_failed(link, "")
