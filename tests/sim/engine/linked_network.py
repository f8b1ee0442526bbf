"""Links of participants to controllers over the simulated network.

A participant dials the active controller again and again. Its link is open there from the first dial that arrives,
until none has arrived for some time, or the instance is not the active controller any more.

    participant ── Dial ──▶ active controller: link_opened     no Dial for some time, or HangUp: link_closed
                ── Dial ──▶ another instance: NotController
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from kactl.decide.messages import sessions
from kactl.decide.messages.sessions import (
    Goodbye,
    Heartbeat,
    Identify,
    ParticipantLink,
    Refused,
    Register,
    SessionAnswer,
    SessionRequest,
    VerifyEndpoint,
)
from kactl.model.errors import ControllerUnreachable, InternalError, NotController
from kactl.testing.history import History
from kactl.testing.network import Network
from kactl.testing.node_network import NodeLink, NodeNetwork, call_controller
from kactl.testing.nodes import Node
from kactl.transports.base import ControllerPort, LinkState, ParticipantPort, Transport

# A link is lost after this many dials that did not arrive.
DIALS_MISSED: Final = 3
# Pause of a participant that has reached no active controller.
RETRY_MS: Final = 50.0


class Dial(NamedTuple):
    """A participant keeps its link open."""

    link: ParticipantLink


class HangUp(NamedTuple):
    """A participant has closed its link."""

    link: ParticipantLink


class AcceptedLinks:
    """Links of participants to one controller instance.

    Args:
        interval_ms: between two dials of a participant.
    """

    def __init__(self, port: ControllerPort, node: Node, history: History, *, interval_ms: float) -> None:
        self._port = port
        self._node = node
        self._history = history
        self._silent_ms = DIALS_MISSED * interval_ms
        self._timers: dict[ParticipantLink, asyncio.TimerHandle] = {}

    def dialed(self, dial: Dial) -> None:
        """Open a link, or keep it open.

        Raises:
            NotController: the instance is not the active controller.
        """
        link, standby = dial.link, self._port.standby()
        if standby is not None:
            self._close(link, "the instance is not the active controller")
            raise NotController(standby.active_id)
        timer = self._timers.pop(link, None)
        if timer is None:
            self._record("link.open", link)
            self._port.link_opened(link)
        else:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[link] = loop.call_later(self._silent_ms / 1000, self._close, link, "no message of the participant")

    def hung_up(self, message: HangUp) -> None:
        """Close a link."""
        self._close(message.link, "the participant has closed it")

    def close(self) -> None:
        """Forget all links."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _close(self, link: ParticipantLink, reason: str) -> None:
        timer = self._timers.pop(link, None)
        if timer is not None:
            timer.cancel()
            self._record("link.close", link)
            self._port.link_closed(link, reason)

    def _record(self, kind: str, link: ParticipantLink) -> None:
        self._history.record(kind, node=self._node.name, broker=link.broker, incarnation=link.incarnation.hex())


class DialedLink:
    """The link of one registration, as its participant keeps it.

    Args:
        controllers: names of the nodes of all instances.
        timeout_ms: the time limit for a response.

    Attributes:
        state: see `ControlLink`.
    """

    def __init__(
        self,
        network: Network,
        port: ParticipantPort,
        *,
        controllers: Sequence[str],
        interval_ms: float,
        timeout_ms: float,
    ) -> None:
        self.state = LinkState.CONNECTING
        self._network = network
        self._port = port
        self._identity = ParticipantLink(port.broker, port.incarnation)
        self._controllers = list(controllers)
        self._interval_ms = interval_ms
        self._timeout_ms = timeout_ms
        self._task = asyncio.get_running_loop().create_task(self._keep(), name="link to the controller")

    async def session(self, request: SessionRequest) -> SessionAnswer:
        """See `ControlLink.session`."""
        if self.state is not LinkState.OPEN:
            raise ControllerUnreachable(f"the link is {self.state.value}")
        answer = await call_controller(self._network, self._controllers[0], request, timeout_ms=self._timeout_ms)
        if isinstance(answer, sessions.NotController):
            self._change(LinkState.CONNECTING, "the instance is not the active controller")
            raise ControllerUnreachable("the instance is not the active controller any more")
        return answer  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close the link for good."""
        if self.state is LinkState.CLOSED:
            return
        if self.state is LinkState.OPEN:
            self._network.send(self._controllers[0], HangUp(self._identity))
        self.state = LinkState.CLOSED
        self._task.cancel()

    async def _keep(self) -> None:
        while True:
            is_open = await self._dial()
            self._change(LinkState.OPEN if is_open else LinkState.CONNECTING, "" if is_open else "no answer")
            await asyncio.sleep((self._interval_ms if is_open else RETRY_MS) / 1000)

    async def _dial(self) -> bool:
        """Dial the instances in turn, and put the one that is active first. Returns whether there was one."""
        for name in tuple(self._controllers):
            try:
                await call_controller(self._network, name, Dial(self._identity), timeout_ms=self._interval_ms)
            except (ControllerUnreachable, NotController):
                if self.state is LinkState.OPEN and name == self._controllers[0]:
                    self._change(LinkState.CONNECTING, f"{name} does not answer")
                continue
            self._controllers.remove(name)
            self._controllers.insert(0, name)
            return True
        return False

    def _change(self, state: LinkState, reason: str) -> None:
        if self.state is not state and self.state is not LinkState.CLOSED:
            self.state = state
            self._port.link_changed(state, reason)


class LinkedNetwork(NodeNetwork):
    """View of one node, with given ids, and links that controllers learn of.

    Args:
        options: see `NodeNetwork`.
        dial_ms: how often participants dial, so that controllers learn of their links. None: they have no links, and
            controllers fence nothing.
    """

    def __init__(
        self,
        network: Network,
        node: Node,
        history: History,
        *,
        dial_ms: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(network, node, history, **options)
        self.reports_links = dial_ms is not None
        self.dial_ms = dial_ms
        self._accepted: AcceptedLinks | None = None

    @asynccontextmanager
    async def controller_side(self, port: ControllerPort) -> AsyncIterator[Transport]:
        """See `Network`."""
        accepted = self._accepted = AcceptedLinks(port, self.node, self.history, interval_ms=self.dial_ms or 0.0)
        try:
            async with super().controller_side(port) as transport:
                yield transport
        finally:
            accepted.close()

    async def answer(self, port: ControllerPort, arrived: Any) -> Any:
        assert self._accepted is not None
        match arrived:
            case Register() | Identify() | Heartbeat() | Goodbye() | VerifyEndpoint():
                return await self._session(port, arrived)
            case Dial():
                return self._accepted.dialed(arrived)
            case HangUp():
                return self._accepted.hung_up(arrived)
            case _:
                return await super().answer(port, arrived)

    async def _session(self, port: ControllerPort, request: SessionRequest) -> SessionAnswer:
        try:
            with self.network.internal_errors(request):
                return await port.session(request, received_ns=port.clock.lease_ns())
        except InternalError as error:
            return Refused.of(error)

    async def identify(self, request: Identify, *, controllers: Sequence[str] = ()) -> SessionAnswer:
        """See `Network`."""
        reasons = []
        for name in self.controllers:
            try:
                answer: SessionAnswer = await call_controller(self.network, name, request, timeout_ms=self.timeout_ms)
            except ControllerUnreachable as failed:
                reasons.append(f"{name}: {failed}")
                continue
            if not isinstance(answer, sessions.NotController):
                return answer
            reasons.append(f"{name} is not active")
        raise ControllerUnreachable("; ".join(reasons) or "the network was given no controllers")

    def new_link(self, port: ParticipantPort) -> "LinkedNodeLink":
        return LinkedNodeLink(self, port)


class LinkedNodeLink(NodeLink):
    """The `ControlLink` of a participant, which dials the controllers if there are links."""

    def __init__(self, network: LinkedNetwork, port: ParticipantPort) -> None:
        super().__init__(network, port)
        self._dialed: DialedLink | None = None
        if network.dial_ms is not None:
            self._dialed = DialedLink(
                network.network,
                port,
                controllers=network.controllers,
                interval_ms=network.dial_ms,
                timeout_ms=network.timeout_ms,
            )

    @property
    def state(self) -> LinkState:
        """See `ControlLink`."""
        return super().state if self._is_closed or self._dialed is None else self._dialed.state

    async def session(self, request: SessionRequest) -> SessionAnswer:
        """See `ControlLink`."""
        return await (super().session(request) if self._dialed is None else self._dialed.session(request))

    def close(self) -> None:
        """See `ControlLink`."""
        if self._dialed is not None:
            self._dialed.close()
        super().close()
