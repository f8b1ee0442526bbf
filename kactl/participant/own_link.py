"""Link of one registration to its network."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import anyio

from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.following import PeerMessage
from kactl.decide.messages.sessions import SessionAnswer, SessionRequest
from kactl.model.errors import ControllerUnreachable
from kactl.transports.base import ControlLink, LinkState, ParticipantNetwork, ParticipantPort


class OwnLink:
    """A `ControlLink` that is opened later. Messages are lost, and requests fail, as long as there is none."""

    def __init__(self) -> None:
        self._link: ControlLink | None = None
        self._open = AsyncExitStack()
        self._changed = anyio.Event()

    async def connect(
        self, network: ParticipantNetwork, port: ParticipantPort, controllers: Sequence[str]
    ) -> ControlLink:
        """Open the link; the same task has to call `disconnect`."""
        self._link = await self._open.enter_async_context(network.participant_side(port, controllers=controllers))
        return self._link

    async def disconnect(self) -> None:
        """Close the link."""
        await self._open.aclose()

    @property
    def is_open(self) -> bool:
        """Whether the link has reached an active controller."""
        return self._link is not None and self._link.state is LinkState.OPEN

    def changed(self) -> None:
        """The state of the link has changed."""
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_open(self) -> None:
        """Wait until the link has reached an active controller."""
        while self._link is not None and self._link.state is LinkState.CONNECTING:
            await self._changed.wait()

    async def wait_tried(self) -> None:
        """Wait until the link is open, or the network has reported that no controller accepts it."""
        if self._link is not None and self._link.state is LinkState.CONNECTING:
            await self._changed.wait()

    async def wait_lost(self) -> None:
        """Wait until the link has no active controller any more."""
        while self.is_open:
            await self._changed.wait()

    def registered(self, epoch: int) -> None:
        """See `ControlLink`."""
        if self._link is not None:
            self._link.registered(epoch)

    def send(self, message: PeerMessage) -> None:
        """See `ControlLink`."""
        if self._link is not None:
            self._link.send(message)

    async def session(self, request: SessionRequest) -> SessionAnswer:
        """See `ControlLink`."""
        if self._link is None:
            raise ControllerUnreachable("the broker has no link to its network")
        return await self._link.session(request)

    async def ask(self, request: ControllerRequest, *, controller: int) -> Any:
        """See `ControlLink`."""
        if self._link is None:
            raise ControllerUnreachable("the broker has no link to its network")
        return await self._link.ask(request, controller=controller)
