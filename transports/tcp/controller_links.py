"""A controller instance on the tcp network: the links of its participants, and the transport to them.

One registration of a participant has one link. A later link of the same registration replaces the earlier one. Requests
to a broker go to the link of its registration; if a registration has no id, to the link that was announced as its own,
or else to the first one.
"""

import asyncio
import logging
import weakref
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple

import anyio
import msgspec

from kactl.decide.messages.admin import ControllerRequest, EnsureTopic, TopicProgress
from kactl.decide.messages.control import Request, Response
from kactl.decide.messages.routes import Watch
from kactl.decide.messages.sessions import (
    START_BYTES,
    UNNAMED,
    Identified,
    Identify,
    NotController,
    ParticipantLink,
    Refused,
    SessionAnswer,
    SessionRequest,
)
from kactl.model import NO_BROKER, Broker
from kactl.model.errors import (
    BrokerUnreachable,
    EndpointUnreachable,
    InternalError,
    KactlError,
    MalformedMessage,
    NotAuthorized,
    SessionExpired,
    StoreUnavailable,
)
from kactl.runtime.addresses import group_of
from kactl.runtime.budget import Unit, account_of
from kactl.runtime.conditions import Conditions
from kactl.runtime.error_id import internal_errors
from kactl.runtime.logs import logger
from kactl.runtime.prices import PARTICIPANT_PRICES
from kactl.runtime.tasks import Tasks
from kactl.transports.base import ControllerPort
from kactl.transports.tcp import wire

from . import attempts, handshake, relayed, rights
from .endpoint_check import EndpointCheck
from .framing import Kind, Message
from .handshake import IDENTIFY
from .identity import Role, is_broker_id
from .lanes import LaneFull
from .limits import REQUEST_BYTES_MAX, SESSION_BYTES_MAX, Limits
from .link import Link, LinkClosed
from .metrics import LinkMetrics

log = logger(__name__)

_UNANSWERED: Final = "a request of %s could not be answered"
# A small message counts as this many unhandled bytes: its handling takes more memory than its bytes.
_MESSAGE_BYTES_MIN: Final = 1_024
# Requests for routes of one link that wait for a change. A spectator has two.
_WATCHES_MAX: Final = 16
# Links of one broker id, each of another registration. An earlier one ends within the time limit of silent links.
LINKS_MAX: Final = 8
# Requests of one participant that the controller has at a time, of each kind and over all of its links: a tenth of the
# controller's queue. Further ones wait here, as long as their link is open.
REQUESTS_MAX: Final = 1_000
# Sizes of what a participant sends, by kind.
_SIZES_MAX: Final = dict.fromkeys(Kind, SESSION_BYTES_MAX) | {
    Kind.ASK: REQUEST_BYTES_MAX,
    Kind.PEER: REQUEST_BYTES_MAX,
}
# The part of a peer's time limit for which an instance waits for an election. The rest is for the handshake before.
_ELECTION_PART: Final = 0.5
# How often per time limit of silent links an instance is asked whether it is still active.
_LOOKS: Final = 6


_ENSURE: Final = PARTICIPANT_PRICES[EnsureTopic.__name__]
_WATCH: Final = PARTICIPANT_PRICES[Watch.__name__]
_IDENTIFY: Final = PARTICIPANT_PRICES[Identify.__name__]
_PEER: Final = PARTICIPANT_PRICES["Peer"]
# Topics that participants have created lately, and whose leaders they wait for.
_CREATED_MAX: Final = 1_000


class Attached(NamedTuple):
    """An open link and the registration that it serves."""

    link: Link
    identity: ParticipantLink

    @property
    def key(self) -> tuple[int, bytes]:
        return self.identity.broker, self.identity.incarnation


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
        self._endpoints = endpoints
        self._ensure_topics = ensure_topics
        self._created: dict[str, None] = {}  # the newest topics that participants have created
        self._links: dict[tuple[int, bytes], Attached] = {}
        self._current: dict[int, Attached] = {}
        self._lost: dict[int, str] = {}  # why a broker has no link
        self._spectators: dict[Link, None] = {}
        self._watches: dict[Link, set[asyncio.Task[None]]] = {}
        # By broker, while it has requests that are not answered.
        self._turns: weakref.WeakValueDictionary[tuple[int, Kind], anyio.Semaphore] = weakref.WeakValueDictionary()
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
        await self._pay(link, {Unit.WORK: _IDENTIFY.ms()})
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
        self._end_watches(link)

    def _detach(self, attached: Attached, reason: str) -> None:
        self._end_watches(attached.link)
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
        """Handle a message of a participant. Raises MalformedMessage."""
        link, broker = attached.link, attached.identity.broker
        match message.kind:
            case Kind.SESSION:
                received_ns = self.port.clock.lease_ns()
                request = wire.decode(message.head, wire.SESSIONS)
                self._begin(attached, message, lambda: self._session(attached, message, request, received_ns))
            case Kind.ASK:
                self._begin(attached, message, lambda: self._ask(attached, message))
            case Kind.PEER:
                self._relay(attached, message)
            case Kind.READY:
                self._current[broker] = attached
            case Kind.METADATA:
                self._watch_routes(link, message)
            case _:
                raise MalformedMessage(f"a participant must not send messages of kind {message.kind.name}")

    def _begin(self, attached: Attached, message: Message, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Carry out a request of a participant, after the earlier ones if these are many."""
        key = attached.identity.broker, message.kind
        turns = self._turns.setdefault(key, anyio.Semaphore(REQUESTS_MAX, fast_acquire=True))
        self._spawn(attached.link, message, self._in_turn(attached.link, turns, work))

    @staticmethod
    async def _in_turn(link: Link, turns: anyio.Semaphore, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        waits = not turns.value
        async with turns:
            if link.is_open or not waits:
                await work()

    def _spawn(self, link: Link, message: Message, work: Any) -> "asyncio.Task[None]":
        size = max(message.size, _MESSAGE_BYTES_MIN)
        link.hold(size)
        task = self.tasks.spawn(work)
        task.add_done_callback(lambda _: link.release(size))
        return task

    def _received_of_spectator(self, link: Link, message: Message) -> None:
        """Handle a message of a spectator. Raises MalformedMessage."""
        if message.kind is not Kind.METADATA:
            raise MalformedMessage(f"a spectator must not send messages of kind {message.kind.name}")
        self._watch_routes(link, message)

    def _watch_routes(self, link: Link, message: Message) -> None:
        watches = self._watches.setdefault(link, set())
        if len(watches) >= _WATCHES_MAX:
            raise MalformedMessage(f"more than {_WATCHES_MAX} requests for routes wait at a time")
        asked = wire.decode(message.head, wire.WATCHES)
        task = self._spawn(link, message, self._answer_watch(link, message, asked))
        watches.add(task)
        task.add_done_callback(watches.discard)

    async def _answer_watch(self, link: Link, message: Message, asked: Watch) -> None:
        try:
            with internal_errors(log, _UNANSWERED, link.what):
                await self._pay(link, {Unit.WORK: _WATCH.ms(size=message.size)})
                answer = wire.encode(await self.port.watch_routes(asked))
        except KactlError as error:
            link.answer(message, wire.encode(error), error=True)
        else:
            self.port.budget.settle(_account(link), Unit.WORK, _WATCH.kib_ms * len(answer) / 1024)
            link.answer(message, answer)

    def _end_watches(self, link: Link) -> None:
        for task in self._watches.pop(link, ()):
            task.cancel()

    async def _session(self, attached: Attached, message: Message, request: SessionRequest, received_ns: int) -> None:
        work = self._carried_out(attached, request, received_ns)
        try:
            with internal_errors(log, _UNANSWERED, attached.link.what):
                answer = await attempts.recorded(self.port, attached.link, request, work)
        except (EndpointUnreachable, InternalError) as error:
            attached.link.answer(message, wire.encode(Refused.of(error)))
        except KactlError as error:
            attached.link.answer(message, wire.encode(error), error=True)
        else:
            attached.link.answer(message, wire.encode(answer))

    async def _carried_out(self, attached: Attached, request: SessionRequest, received_ns: int) -> SessionAnswer:
        price = PARTICIPANT_PRICES[type(request).__name__]
        self.port.budget.charge(_account(attached.link), {Unit.WORK: price.ms()}, is_free=True)
        rights.check_session(request, attached.identity)
        await self._endpoints.before(request, attached.identity)
        return await self.port.session(request, received_ns=received_ns)

    async def _ask(self, attached: Attached, message: Message) -> None:
        try:
            with internal_errors(log, _UNANSWERED, attached.link.what):
                request = await self._decoded(attached, message)
                work = attempts.recorded(self.port, attached.link, request, self._asked(attached, request))
                answer = wire.encode_answer(await work)
        except KactlError as error:
            attached.link.answer(message, wire.encode(error), error=True)
        else:
            attached.link.answer(message, answer)

    async def _asked(self, attached: Attached, request: ControllerRequest) -> Any:
        """Returns the controller's answer. The creation of a topic is charged before, and given back if it exists."""
        if not isinstance(request, EnsureTopic):
            return await self.port.ask(request)
        rights.check_topic(request.topic, attached.identity, self._ensure_topics)
        account = _account(attached.link)
        amounts = {Unit.PARTITIONS: request.count, Unit.WORK: _ENSURE.partition_ms * request.count}
        # A topic that was just created is asked about until it has leaders.
        await self._pay(attached.link, amounts, is_free=request.topic in self._created)
        created = False
        try:
            progress: TopicProgress = await self.port.ask(request)
            created = progress.created
            if created:
                self._created[request.topic] = None
                if len(self._created) > _CREATED_MAX:
                    del self._created[next(iter(self._created))]
            return progress
        finally:
            for unit, amount in () if created else amounts.items():
                self.port.budget.settle(account, unit, -amount)

    async def _pay(self, link: Link, amounts: Mapping[Unit, float], *, is_free: bool = False) -> None:
        """Charge a peer, as soon as its account permits: its requests wait, and its sessions do not."""
        account = _account(link)
        while (excess := self.port.budget.charge(account, amounts, is_free=is_free)) is not None:
            await self.port.clock.sleep_ms(excess.wait_s * 1_000)
            if not link.is_open:
                raise LinkClosed(link.reason)

    async def _decoded(self, attached: Attached, message: Message) -> ControllerRequest:
        """Returns a request that the participant may send. Its rights are checked before its body is decoded."""
        try:
            begin = wire.begin_of(message.head)
            try:
                rights.check_request(begin, attached.identity.broker)
            except NotAuthorized as error:
                attempts.denied(self.port, attached.link, begin, str(error))
                raise
            if message.size > begin.bytes_max:
                raise MalformedMessage(f"the request has {message.size} bytes: at most {begin.bytes_max} are accepted")
            if begin.kind is not None:
                price = PARTICIPANT_PRICES[begin.kind.__name__]
                await self._pay(attached.link, {Unit.WORK: price.ms(size=message.size)})
            request: ControllerRequest = wire.decode(message.head, wire.REQUESTS)
        except MalformedMessage as error:
            self._violated(attached.link, str(error))
            raise
        return request

    def _relay(self, attached: Attached, message: Message) -> None:
        """Pass a message on. It is lost if its recipient has no link, or does not read.

        It is also lost beyond its sender's account for messages, which other requests do not use up: ISRs depend on it.
        """
        sender = attached.identity.broker
        amounts = {Unit.WORK: _PEER.ms(size=message.size)}
        if self.port.budget.charge(f"messages of {_account(attached.link)}", amounts) is not None:
            log.debug("a message of broker %d is lost: its account is used up", sender)
            return
        recipient, head = relayed.forwarded(message.head, sender)
        target = self._current.get(recipient)
        if target is not None and target.link.is_open:
            try:
                target.link.one_way(Kind.PEER, head)
            except (LinkClosed, LaneFull) as error:
                log.debug("a message of broker %d to broker %d is lost: %s", sender, recipient, error)


def _account(link: Link) -> str:
    """Returns the account of a peer. Spectators have no names, so that each address has one."""
    principal = link.principal
    return account_of(principal) if principal.name else f"{principal.label}{group_of(principal.peer)}"


class TcpTransport:
    """The `Transport` of a controller to the participants that are linked to it."""

    def __init__(self, office: ControllerLinks) -> None:
        self._office = office

    def connect(self, broker: Broker) -> "TcpConnection":
        """See `Transport`."""
        return TcpConnection(self._office, broker)


class TcpConnection:
    """Requests to one registration of one broker, over whichever link it has at the time."""

    def __init__(self, office: ControllerLinks, broker: Broker) -> None:
        self._office = office
        self._broker = broker
        self._is_closed = False
        self._waits: anyio.CancelScope | None = None

    async def deliver(self, request: Request) -> Response:
        """See `Connection`. Cancelling the call does not close the link, which others use; the response is ignored."""
        if self._is_closed:
            raise self._unreachable("the connection was closed: open a new one")
        link = self._office.find(self._broker)
        limit_ms = self._office.limits.request_ms
        answer: Message | None = None
        with anyio.move_on_after(limit_ms / 1000) as self._waits:
            try:
                answer = await link.request(Kind.ORDER, wire.encode_pieces(request))
            except (LinkClosed, LaneFull) as error:
                raise self._unreachable(str(error)) from error
        if answer is None:
            reason = "the connection was closed" if self._is_closed else f"no response within {limit_ms} ms"
            raise self._unreachable(f"{reason} (limits.request_ms)")
        try:
            if answer.error:
                raise self._unreachable(str(wire.decode(answer.head, wire.ERRORS)))
            response: Response = wire.decode(answer.head, wire.RESPONSES)
        except MalformedMessage as error:
            link.abort(str(error))
            raise self._unreachable(f"what it sent is no response: {error}") from error
        return response

    async def close(self) -> None:
        """See `Connection`. A request that is in flight fails."""
        self._is_closed = True
        if self._waits is not None:
            self._waits.cancel()

    def _unreachable(self, reason: str) -> BrokerUnreachable:
        return BrokerUnreachable(self._broker.id, reason)
