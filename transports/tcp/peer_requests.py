"""Requests that participants and spectators send over their links, and what each of them is charged.

A request of a participant waits for its earlier ones if these are many, and for its account. Sessions wait for neither
account: a lease depends on them.
"""

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple

import anyio

from kactl.decide.messages.admin import ControllerRequest, EnsureTopic, TopicProgress
from kactl.decide.messages.routes import Watch
from kactl.decide.messages.sessions import ParticipantLink, Refused, SessionAnswer, SessionRequest
from kactl.model.errors import EndpointUnreachable, InternalError, KactlError, MalformedMessage, NotAuthorized
from kactl.runtime.addresses import group_of
from kactl.runtime.budget import Unit, account_of
from kactl.runtime.error_id import internal_errors
from kactl.runtime.logs import logger
from kactl.runtime.prices import PARTICIPANT_PRICES
from kactl.runtime.tasks import Tasks
from kactl.transports.base import ControllerPort
from kactl.transports.tcp import wire

from . import attempts, relayed, rights
from .endpoint_check import EndpointCheck
from .framing import Kind, Message
from .lanes import LaneFull
from .link import Link, LinkClosed

log = logger(__name__)

_UNANSWERED: Final = "a request of %s could not be answered"
# A small message counts as this many unhandled bytes: its handling takes more memory than its bytes.
_MESSAGE_BYTES_MIN: Final = 1_024
# Requests for routes of one link that wait for a change. A spectator has two.
_WATCHES_MAX: Final = 16
# Requests of one participant that the controller has at a time, of each kind and over all of its links: a tenth of the
# controller's queue. Further ones wait here, as long as their link is open.
REQUESTS_MAX: Final = 1_000
# Topics that participants have created lately, and whose leaders they wait for.
_CREATED_MAX: Final = 1_000
_ENSURE: Final = PARTICIPANT_PRICES[EnsureTopic.__name__]
_WATCH: Final = PARTICIPANT_PRICES[Watch.__name__]
_PEER: Final = PARTICIPANT_PRICES["Peer"]


class Attached(NamedTuple):
    """An open link and the registration that it serves."""

    link: Link
    identity: ParticipantLink

    @property
    def key(self) -> tuple[int, bytes]:
        return self.identity.broker, self.identity.incarnation


class PeerRequests:
    """The requests that reach one controller instance.

    Args:
        tasks: in which requests are carried out.
        link_of: returns the link to which messages for a participant go; None without one.
    """

    def __init__(
        self,
        port: ControllerPort,
        tasks: Tasks,
        endpoints: EndpointCheck,
        ensure_topics: rights.EnsureTopics | None,
        link_of: Callable[[int], Link | None],
    ) -> None:
        self._port = port
        self._tasks = tasks
        self._endpoints = endpoints
        self._ensure_topics = ensure_topics
        self._link_of = link_of
        self._created: dict[str, None] = {}  # the newest topics that participants have created
        self._watches: dict[Link, set[asyncio.Task[None]]] = {}
        # By broker, while it has requests that are not answered.
        self._turns: weakref.WeakValueDictionary[tuple[int, Kind], anyio.Semaphore] = weakref.WeakValueDictionary()

    def receive(self, attached: Attached, message: Message) -> None:
        """Begin to handle a message of a participant. Raises MalformedMessage."""
        match message.kind:
            case Kind.SESSION:
                received_ns = self._port.clock.lease_ns()
                request = wire.decode(message.head, wire.SESSIONS)
                self._begin(attached, message, lambda: self._session(attached, message, request, received_ns))
            case Kind.ASK:
                self._begin(attached, message, lambda: self._ask(attached, message))
            case Kind.PEER:
                self._relay(attached, message)
            case Kind.METADATA:
                self.watch(attached.link, message)
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
        task = self._tasks.spawn(work)
        task.add_done_callback(lambda _: link.release(size))
        return task

    def watch(self, link: Link, message: Message) -> None:
        """Begin to answer a request for routes. Raises MalformedMessage."""
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
                await self.pay(link, {Unit.WORK: _WATCH.ms(size=message.size)})
                answer = wire.encode(await self._port.watch_routes(asked))
        except KactlError as error:
            link.answer(message, wire.encode(error), error=True)
        else:
            self._port.budget.settle(_account(link), Unit.WORK, _WATCH.kib_ms * len(answer) / 1024)
            link.answer(message, answer)

    def end_watches(self, link: Link) -> None:
        """Leave requests for routes unanswered, whose link has ended."""
        for task in self._watches.pop(link, ()):
            task.cancel()

    async def _session(self, attached: Attached, message: Message, request: SessionRequest, received_ns: int) -> None:
        work = self._carried_out(attached, request, received_ns)
        try:
            with internal_errors(log, _UNANSWERED, attached.link.what):
                answer = await attempts.recorded(self._port, attached.link, request, work)
        except (EndpointUnreachable, InternalError) as error:
            attached.link.answer(message, wire.encode(Refused.of(error)))
        except KactlError as error:
            attached.link.answer(message, wire.encode(error), error=True)
        else:
            attached.link.answer(message, wire.encode(answer))

    async def _carried_out(self, attached: Attached, request: SessionRequest, received_ns: int) -> SessionAnswer:
        price = PARTICIPANT_PRICES[type(request).__name__]
        self._port.budget.charge(_account(attached.link), {Unit.WORK: price.ms()}, is_free=True)
        rights.check_session(request, attached.identity)
        await self._endpoints.before(request, attached.identity)
        return await self._port.session(request, received_ns=received_ns)

    async def _ask(self, attached: Attached, message: Message) -> None:
        try:
            with internal_errors(log, _UNANSWERED, attached.link.what):
                request = await self._decoded(attached, message)
                work = attempts.recorded(self._port, attached.link, request, self._asked(attached, request))
                answer = wire.encode_answer(await work)
        except KactlError as error:
            attached.link.answer(message, wire.encode(error), error=True)
        else:
            attached.link.answer(message, answer)

    async def _asked(self, attached: Attached, request: ControllerRequest) -> Any:
        """Returns the controller's answer. The creation of a topic is charged before, and given back if it exists."""
        if not isinstance(request, EnsureTopic):
            return await self._port.ask(request)
        rights.check_topic(request.topic, attached.identity, self._ensure_topics)
        account = _account(attached.link)
        amounts = {Unit.PARTITIONS: request.count, Unit.WORK: _ENSURE.partition_ms * request.count}
        # A topic that was just created is asked about until it has leaders.
        await self.pay(attached.link, amounts, is_free=request.topic in self._created)
        created = False
        try:
            progress: TopicProgress = await self._port.ask(request)
            created = progress.created
            if created:
                self._created[request.topic] = None
                if len(self._created) > _CREATED_MAX:
                    del self._created[next(iter(self._created))]
            return progress
        finally:
            for unit, amount in () if created else amounts.items():
                self._port.budget.settle(account, unit, -amount)

    async def pay(self, link: Link, amounts: Mapping[Unit, float], *, is_free: bool = False) -> None:
        """Charge a peer, as soon as its account permits: its requests wait, and its sessions do not."""
        account = _account(link)
        while (excess := self._port.budget.charge(account, amounts, is_free=is_free)) is not None:
            await self._port.clock.sleep_ms(excess.wait_s * 1_000)
            if not link.is_open:
                raise LinkClosed(link.reason)

    async def _decoded(self, attached: Attached, message: Message) -> ControllerRequest:
        """Returns a request that the participant may send. Its rights are checked before its body is decoded."""
        try:
            begin = wire.begin_of(message.head)
            try:
                rights.check_request(begin, attached.identity.broker)
            except NotAuthorized as error:
                attempts.denied(self._port, attached.link, begin, str(error))
                raise
            if message.size > begin.bytes_max:
                raise MalformedMessage(f"the request has {message.size} bytes: at most {begin.bytes_max} are accepted")
            if begin.kind is not None:
                price = PARTICIPANT_PRICES[begin.kind.__name__]
                await self.pay(attached.link, {Unit.WORK: price.ms(size=message.size)})
            request: ControllerRequest = wire.decode(message.head, wire.REQUESTS)
        except MalformedMessage as error:
            attempts.violated(self._port, attached.link, str(error))
            raise
        return request

    def _relay(self, attached: Attached, message: Message) -> None:
        """Pass a message on. It is lost if its recipient has no link, or does not read.

        It is also lost beyond its sender's account for messages, which other requests do not use up: ISRs depend on it.
        """
        sender = attached.identity.broker
        amounts = {Unit.WORK: _PEER.ms(size=message.size)}
        if self._port.budget.charge(f"messages of {_account(attached.link)}", amounts) is not None:
            log.debug("a message of broker %d is lost: its account is used up", sender)
            return
        recipient, head = relayed.forwarded(message.head, sender)
        link = self._link_of(recipient)
        if link is not None and link.is_open:
            try:
                link.one_way(Kind.PEER, head)
            except (LinkClosed, LaneFull) as error:
                log.debug("a message of broker %d to broker %d is lost: %s", sender, recipient, error)


def _account(link: Link) -> str:
    """Returns the account of a peer. Spectators have no names, so that each address has one."""
    principal = link.principal
    return account_of(principal) if principal.name else f"{principal.label}{group_of(principal.peer)}"
