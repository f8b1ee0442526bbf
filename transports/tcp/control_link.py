"""A participant on the tcp network: its link to the active controller."""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio

from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.following import PeerMessage
from kactl.decide.messages.sessions import Granted, Heartbeat, NotController, Register, SessionAnswer, SessionRequest
from kactl.model import NO_EPOCH, Endpoint
from kactl.model.errors import BrokerUnreachable, ControllerUnreachable, MalformedMessage, NotAuthorized
from kactl.runtime.conditions import Conditions
from kactl.runtime.error_id import log_error
from kactl.runtime.logs import logger
from kactl.transports.base import LinkState, ParticipantPort
from kactl.transports.tcp import wire

from . import handshake, relayed
from .addresses import Address
from .controller_link import ControllerLink
from .dialing import Dialer
from .framing import Kind, Message
from .handshake import Hello
from .identity import Identity, Role
from .lanes import LaneFull
from .link import Link, LinkClosed
from .search import ControllerSearch
from .served import Served, Term

log = logger(__name__)

# More requests than a controller has in flight to one broker; the same bound as in a participant's inbox.
_ORDERS_MAX: Final = 100


class TcpControlLink(ControllerLink):
    """The `ControlLink` of one registration.

    Args:
        peer: where other participants connect to this one, if they can.
        served: of all participants of the network.
    """

    def __init__(
        self,
        port: ParticipantPort,
        *,
        cluster: str,
        dialer: Dialer,
        addresses: Callable[[], Sequence[Address]],
        peer: Endpoint | None,
        rng: random.Random,
        served: Served,
    ) -> None:
        self.peer = peer
        self._served = served
        self._conditions = Conditions(log)
        self._port = port
        self._identity = Identity(cluster, Role.PARTICIPANT, port.claim)
        self._broker_epoch = NO_EPOCH
        self._orders = 0
        search = ControllerSearch(
            dialer, addresses=addresses, hello=self._hello, rng=rng, clock=served.clock, why_foreign=self._why_foreign
        )
        super().__init__(f"broker {port.broker}", search, dialer, rng)

    def _hello(self) -> Hello:
        return handshake.hello(
            self._identity,
            incarnation=self._port.incarnation,
            silence_ms=self._limits.silence_ms,
            broker=self._port.broker,
        )

    async def _why_foreign(self, term: Term) -> str:
        reason = self._served.why_foreign(term)
        if not reason and term.epoch != NO_EPOCH:
            with anyio.move_on_after(self._limits.request_ms / 1000):
                reason = await self._port.why_foreign(int(term.controller), term.epoch)
        if reason:
            text, kind = "broker %d refuses a link: %s", (term.controller, term.epoch)
            self._conditions.add("", logging.ERROR, text, self._port.broker, reason, kind=kind)
        return reason

    # -- ControlLink ---------------------------------------------------------------------------------------------------

    async def ask(self, request: ControllerRequest, *, controller: int) -> Any:
        link = self._opened()
        if controller != self._controller:
            raise ControllerUnreachable(f"its id is {controller}, and the link leads to controller {self._controller}")
        answer = await self._exchange(link, Kind.ASK, request)
        return self._decoded(link, lambda: wire.decode_answer(answer.head, type(request)))

    async def session(self, request: SessionRequest) -> SessionAnswer:
        if isinstance(request, Register):
            self._check_refusal()
        link = self._opened()
        began, term, sent_ns = asyncio.get_running_loop().time(), self._term, self._served.clock.lease_ns()
        message = await self._exchange(link, Kind.SESSION, request)
        answer: SessionAnswer = self._decoded(link, lambda: wire.decode(message.head, wire.ANSWERS_OF_SESSIONS))
        if isinstance(answer, NotController):
            self._sent_away(link, answer)
            raise ControllerUnreachable(f"controller {self._controller} is not active any more")
        if isinstance(answer, Granted) and term is not None:
            self._served.granted(term, timeout_ms=answer.timeout_ms, sent_ns=sent_ns)
        if isinstance(request, Heartbeat):
            self._dialer.metrics.round_trip((asyncio.get_running_loop().time() - began) * 1000)
        return answer

    def _check_refusal(self) -> None:
        """Raises NotAuthorized or ProtocolMismatch if every controller has refused this program."""
        refusal = self._search.refusal
        if refusal is not None and self._link is None:
            raise type(refusal)(self._search.why_not())

    def send(self, message: PeerMessage) -> None:
        if self._link is not None:
            self._one_way(self._link, Kind.PEER, relayed.sealed(message))

    def registered(self, broker_epoch: int) -> None:
        self._broker_epoch = broker_epoch
        if self._link is not None:
            self._one_way(self._link, Kind.READY, b"")

    # -- messages of the controller ------------------------------------------------------------------------------------

    def _began(self, link: Link) -> None:
        self._conditions.end("", "broker %d has a link", self._port.broker)
        if self._broker_epoch != NO_EPOCH:
            self._one_way(link, Kind.READY, b"")

    def _changed(self, state: LinkState, reason: str) -> None:
        self._port.link_changed(state, reason)

    def _received(self, link: Link, message: Message) -> None:
        if message.kind is Kind.ORDER:
            if self._orders >= _ORDERS_MAX:
                raise MalformedMessage(f"more than {_ORDERS_MAX} requests wait for their responses")
            self._orders += 1
            link.hold(message.size)
            self._tasks.spawn(self._order(link, message))
        elif message.kind is Kind.PEER:
            try:
                self._port.receive(relayed.opened(message.head, self._port.broker))
            except NotAuthorized as error:
                text = "a message to broker %d is ignored: %s"
                self._conditions.add("peer", logging.WARNING, text, self._port.broker, error)
        else:
            super()._received(link, message)

    async def _order(self, link: Link, message: Message) -> None:
        try:
            request = wire.decode(message.head, wire.ORDERS)
            response = await self._port.handle(request)
            link.send(Message(message.kind, message.stream, pieces=wire.encode_pieces(response), answer=True))
        except MalformedMessage as error:
            link.abort(str(error))
        except (LinkClosed, LaneFull) as error:
            log.info("broker %d could not respond to a request: %s", self._port.broker, error)
        except BrokerUnreachable as error:
            link.answer(message, wire.encode(error), error=True)
        except Exception as error:
            error_id = log_error(log, error, "broker %d could not carry out a request", self._port.broker)
            reason = f"its handler raised {type(error).__name__}: its log has the details under {error_id}"
            unreachable = BrokerUnreachable(self._port.broker, reason)
            link.answer(message, wire.encode(unreachable), error=True)
        finally:
            self._orders -= 1
            link.release(message.size)
