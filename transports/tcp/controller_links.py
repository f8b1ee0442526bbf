"""A controller instance on the tcp network: the links of its participants and spectators.

One registration of a participant has one link. A later link of the same registration replaces the earlier one. Requests
to a broker go to the link of its registration; if a registration has no id, to the link that was announced as its own,
or else to the first one.
"""

import asyncio
import logging
from typing import Final

import msgspec

from kactl.decide.messages.sessions import (
    START_BYTES,
    UNNAMED,
    Identified,
    Identify,
    NotController,
    ParticipantLink,
    Refused,
)
from kactl.model import NO_BROKER, Broker
from kactl.model.errors import (
    BrokerUnreachable,
    InternalError,
    KactlError,
    MalformedMessage,
    NotAuthorized,
    SessionExpired,
    StoreUnavailable,
)
from kactl.runtime.budget import Unit
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.runtime.prices import PARTICIPANT_PRICES
from kactl.runtime.tasks import Tasks
from kactl.transports.base import ControllerPort

from . import attempts, handshake, rights
from .endpoint_check import EndpointCheck
from .framing import Kind, Message
from .handshake import IDENTIFY
from .identity import Role, is_broker_id
from .limits import REQUEST_BYTES_MAX, SESSION_BYTES_MAX, Limits
from .link import Link, LinkClosed
from .metrics import LinkMetrics
from .peer_requests import Attached, PeerRequests

log = logger(__name__)

# Links of one broker id, each of another registration. An earlier one ends within the time limit of silent links.
LINKS_MAX: Final = 8
# Sizes of what a participant sends, by kind.
_SIZES_MAX: Final = dict.fromkeys(Kind, SESSION_BYTES_MAX) | {
    Kind.ASK: REQUEST_BYTES_MAX,
    Kind.PEER: REQUEST_BYTES_MAX,
}
# The part of a peer's time limit for which an instance waits for an election. The rest is for the handshake before.
_ELECTION_PART: Final = 0.5
# How often per time limit of silent links an instance is asked whether it is still active.
_LOOKS: Final = 6
_IDENTIFY: Final = PARTICIPANT_PRICES[Identify.__name__]


class ControllerLinks:
    """One controller instance."""

    def __init__(
        self,
        port: ControllerPort,
        *,
        limits: Limits,
        metrics: LinkMetrics,
        endpoints: EndpointCheck,
        ensure_topics: rights.EnsureTopics | None = None,
    ) -> None:
        self.port = port
        self.limits = limits
        self.metrics = metrics
        self.tasks = Tasks(f"controller {port.node_id}")
        self._requests = PeerRequests(port, self.tasks, endpoints, ensure_topics, self._link_of)
        self._links: dict[tuple[int, bytes], Attached] = {}
        self._current: dict[int, Attached] = {}
        self._lost: dict[int, str] = {}  # why a broker has no link
        self._spectators: dict[Link, None] = {}
        self._is_closed = False
        self._conditions = Conditions(log, ends_alone=True)

    def open(self) -> None:
        """Watch whether the instance is active."""
        self.tasks.spawn(self._watch())

    async def close(self) -> None:
        """Close all links, with a hint to look for another controller."""
        self._is_closed = True
        links = self._all_links()
        for link in links:
            self._dismiss(link, NotController(), "the controller has stopped")
        await self.tasks.close()
        for link in links:
            await link.wait_lost()

    # -- links ---------------------------------------------------------------------------------------------------------

    async def receive(self, link: Link, hello: handshake.Hello, version: int) -> None:
        """Welcome a peer whose identity is known, or send it to the active controller."""
        try:
            standby = await self._standby(link)
            if standby is not None:
                self._dismiss(link, standby, "this instance is not the active controller")
            elif hello.role is Role.PARTICIPANT:
                await self._receive_participant(link, hello, version)
            else:
                self.attach_spectator(link, hello, version)
        except LinkClosed as error:
            log.debug("%s has left before it was welcomed: %s", hello.identity, error)
        except KactlError as error:
            handshake.refuse(link, error)
            link.close(str(error))
        except BaseException:
            # Nothing else would end it: its silence is not watched yet.
            link.abort("its handshake could not be completed")
            raise

    async def _standby(self, link: Link) -> NotController | None:
        """Returns which instance is active; None if it is this one.

        While no other one is known, this waits a while for an election: all participants lose the earlier controller at
        the same moment, and would connect again and again until the next one is active.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self.limits.handshake_ms / 1000 * _ELECTION_PART
        while (standby := self.port.standby()) is not None:
            if standby.active_id not in (NO_BROKER, self.port.node_id) or loop.time() >= until_s:
                return standby
            await asyncio.sleep(self.limits.backoff_ms / 1000)
            if not link.is_open:
                raise LinkClosed(link.reason)
        return None

    async def _receive_participant(self, link: Link, hello: handshake.Hello, version: int) -> None:
        """Welcome a participant under its id. Raises KactlError if it has none."""
        if is_broker_id(hello.name) and hello.purpose != IDENTIFY:
            self.attach(link, hello, version, int(hello.name))
            return
        if is_broker_id(hello.name) or len(hello.incarnation) < START_BYTES:
            raise NotAuthorized(f"{hello.identity} cannot be given an id: it has one, or sent no incarnation")
        await self._requests.pay(link, {Unit.WORK: _IDENTIFY.ms()})
        name = "" if hello.name == UNNAMED else hello.name
        request = Identify(hello.broker, name, hello.incarnation[:START_BYTES])
        answer = await self.port.session(request, received_ns=self.port.clock.lease_ns())
        match answer:
            case Identified(broker) if hello.purpose == IDENTIFY:
                handshake.welcome(link, version, broker=broker)
                link.close("the id is known")
            case Identified(broker) if broker == hello.broker:
                self.attach(link, hello, version, broker)
            case Identified():
                raise SessionExpired(f"{hello.identity} has lost the id {hello.broker}: register again")
            case NotController():
                self._dismiss(link, answer, "this instance is not the active controller")
            case Refused(reason=reason):
                raise StoreUnavailable(f"{hello.identity} was given no id: {reason}")
            case _:
                raise InternalError(f"{answer} is no answer to {request}")

    def attach(self, link: Link, hello: handshake.Hello, version: int, broker: int) -> None:
        """Welcome a participant under a broker id that it may have."""
        identity = ParticipantLink(broker, hello.incarnation, link.peer_address, hello.name)
        if hello.name == UNNAMED:  # each has an account and a line in audit trails of its own
            link.principal = msgspec.structs.replace(link.principal, name=str(broker))
        attached = Attached(link, identity)
        earlier = self._links.pop(attached.key, None)
        self._links[attached.key] = attached
        if earlier is not None:
            if earlier.link.is_live:
                text = (
                    "%s has opened a link from %s, and its link from %s is still used: if this is repeated, two "
                    "processes have one registration, as copies of a virtual machine have; start one of them anew"
                )
                addresses = link.peer_address, earlier.link.peer_address
                self._conditions.add(attached.key, logging.WARNING, text, hello.identity, *addresses)
            earlier.link.close("a later link of the same registration has replaced this one")
        if earlier is not None and self._current.get(identity.broker) is earlier:
            self._current[identity.broker] = attached
        self._current.setdefault(identity.broker, attached)
        self._limit_links(identity.broker)
        link.what = str(hello.identity)
        link.on_closed = lambda reason: self._detach(attached, reason)
        link.on_violation = lambda reason: self._violated(link, reason)
        handshake.welcome(link, version, *self.port.active_term())
        link.serve(lambda message: self._received(attached, message), silence_ms=hello.silence_ms, kinds=_SIZES_MAX)
        self.metrics.opened(hello.role.value)
        self.port.link_opened(identity)

    def _limit_links(self, broker: int) -> None:
        """Close the oldest link of a broker that has too many, except for the one that is announced as its own."""
        own = [other for other in self._links.values() if other.identity.broker == broker]
        if len(own) > LINKS_MAX:
            oldest = next(other for other in own if other is not self._current[broker])
            oldest.link.close(f"{LINKS_MAX} later registrations of broker {broker} have links")

    def attach_spectator(self, link: Link, hello: handshake.Hello, version: int) -> None:
        """Welcome a program that only watches routes."""
        link.what = str(hello.identity)
        link.on_closed = lambda _: self._spectator_left(link, hello.role)
        self._spectators[link] = None
        link.on_violation = lambda reason: self._violated(link, reason)
        handshake.welcome(link, version)
        link.serve(
            lambda message: self._received_of_spectator(link, message),
            silence_ms=hello.silence_ms,
            kinds=dict.fromkeys(Kind, SESSION_BYTES_MAX),
        )
        self.metrics.opened(hello.role.value)

    def _violated(self, link: Link, reason: str) -> None:
        attempts.violated(self.port, link, reason)

    def _spectator_left(self, link: Link, role: Role) -> None:
        self.metrics.closed(role.value)
        self._spectators.pop(link, None)
        self._requests.end_watches(link)

    def _detach(self, attached: Attached, reason: str) -> None:
        self._requests.end_watches(attached.link)
        self.metrics.closed(Role.PARTICIPANT.value)
        broker = attached.identity.broker
        is_replaced = self._links.get(attached.key) is not attached
        if not is_replaced:
            del self._links[attached.key]
        if self._current.get(broker) is attached:
            del self._current[broker]
            self._lost[broker] = reason
            others = [other for other in self._links.values() if other.identity.broker == broker]
            if others:
                self._current[broker] = others[-1]
        if not is_replaced and not self._is_closed:
            self.port.link_closed(attached.identity, reason)

    def find(self, broker: Broker) -> Link:
        """Returns the link to a registration.

        Raises:
            BrokerUnreachable: there is none.
        """
        if broker.incarnation:
            attached = self._links.get((broker.id, broker.incarnation))
        else:
            attached = self._current.get(broker.id)
        if attached is None or not attached.link.is_open:
            reason = self._lost.get(broker.id, "it has not connected to this controller yet")
            raise BrokerUnreachable(broker.id, f"it has no open link: {reason}")
        return attached.link

    async def _watch(self) -> None:
        """Send participants away when the instance is not active any more."""
        while True:
            await asyncio.sleep(self.limits.silence_ms / 1000 / _LOOKS)
            links = self._all_links()
            answer = self.port.standby() if links else None
            if answer is not None:
                for link in links:
                    self._dismiss(link, answer, "this instance is not the active controller any more")

    def _all_links(self) -> list[Link]:
        return [*(attached.link for attached in self._links.values()), *self._spectators]

    def verify_again(self, reason: str) -> None:
        """Close all links. Programs connect again at once, and have their certificates verified."""
        for link in self._all_links():
            link.close(reason)

    @staticmethod
    def _dismiss(link: Link, answer: NotController, reason: str) -> None:
        if link.is_open:
            handshake.redirect(link, answer)
            link.close(reason)

    # -- messages ------------------------------------------------------------------------------------------------------

    def _received(self, attached: Attached, message: Message) -> None:
        if message.kind is Kind.READY:
            self._current[attached.identity.broker] = attached
        else:
            self._requests.receive(attached, message)

    def _received_of_spectator(self, link: Link, message: Message) -> None:
        """Handle a message of a spectator. Raises MalformedMessage."""
        if message.kind is not Kind.METADATA:
            raise MalformedMessage(f"a spectator must not send messages of kind {message.kind.name}")
        self._requests.watch(link, message)

    def _link_of(self, broker: int) -> Link | None:
        attached = self._current.get(broker)
        return None if attached is None else attached.link
