"""Links of participants to controllers over the simulated network.

A participant dials the active controller again and again. Its link is open there from the first dial that arrives,
until none has arrived for some time, or the instance is not the active controller any more.

    participant ── Dial ──▶ active controller: link_opened     no Dial for some time, or HangUp: link_closed
                ── Dial ──▶ another instance: NotController
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kactl.decide.messages import sessions
from kactl.decide.messages.sessions import ParticipantLink, SessionAnswer, SessionRequest
from kactl.model.errors import ControllerUnreachable, NotController
from kactl.transports.base import ControllerPort, LinkState, ParticipantPort

from .history import History
from .network import Network, Unreachable
from .nodes import Node

# A link is lost after this many dials that did not arrive.
DIALS_MISSED: Final = 3
# Pause of a participant that has reached no active controller.
RETRY_MS: Final = 50.0


async def call_controller(network: Network, name: str, message: Any, *, timeout_ms: float) -> Any:
    """Send a message to a controller instance from the current node. Returns the answer.

    Raises:
        ControllerUnreachable: there was no answer in time.
        KactlError: the answer.
    """
    try:
        return await network.call(name, message, timeout_ms=timeout_ms)
    except Unreachable as failed:
        raise ControllerUnreachable(f"{name}: {failed}") from None


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
