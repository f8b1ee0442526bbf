"""A link to the active controller, whichever that is at the time.

CONNECTING ──an active controller welcomes it──▶ OPEN ──the link ends──▶ CONNECTING ──▶ ...
                                      close, at any moment ──▶ CLOSED
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import anyio

from kactl.decide.messages.sessions import NotController
from kactl.model import NO_BROKER
from kactl.model.errors import ControllerUnreachable, MalformedMessage
from kactl.runtime.logs import logger
from kactl.runtime.tasks import Tasks
from kactl.transports.base import LinkState
from kactl.transports.tcp import wire

from .dialing import Dialer
from .framing import Kind, Message
from .identity import Role
from .lanes import LaneFull
from .link import Link, LinkClosed
from .search import ControllerSearch, Found
from .served import Term

log = logger(__name__)

_REDIRECT = wire.Family(NotController)


class ControllerLink:
    """Keeps a link to the active controller open. Base class of the links of participants and spectators.

    Args:
        owner: for log lines.
    """

    def __init__(self, owner: str, search: ControllerSearch, dialer: Dialer, rng: random.Random) -> None:
        self.state = LinkState.CONNECTING
        self._owner = owner
        self._search = search
        self._dialer = dialer
        self._rng = rng
        self._limits = dialer.limits
        self._link: Link | None = None
        self._controller = NO_BROKER
        self._term: Term | None = None
        self._tasks = Tasks(f"the link of {owner}")

    def open(self) -> None:
        """Begin to look for the active controller."""
        self._tasks.spawn(self._run())

    def close(self) -> None:
        """Close the link for good, without waiting for its tasks."""
        if self.state is LinkState.CLOSED:
            return
        self.state = LinkState.CLOSED
        self._tasks.cancel()
        if self._link is not None:
            self._link.close(f"{self._owner} has closed it")

    async def aclose(self) -> None:
        """Close the link, and wait for its tasks."""
        link = self._link
        self.close()
        await self._tasks.close()
        if link is not None:
            await link.wait_lost()

    # -- for derived classes -------------------------------------------------------------------------------------------

    def _began(self, link: Link) -> None:
        """Called when a link has been opened, before anything else is sent on it."""

    def _changed(self, state: LinkState, reason: str) -> None:
        """Called after each change of the state, except by `close`, and if every controller refuses the link."""

    def _received(self, link: Link, message: Message) -> None:
        """Handle a message of the controller that is no answer. Raises MalformedMessage."""
        if message.kind is not Kind.HANDSHAKE:
            raise MalformedMessage(f"a controller must not send messages of kind {message.kind.name} to {self._owner}")
        self._sent_away(link, wire.decode(message.head, _REDIRECT))

    def _sent_away(self, link: Link, answer: NotController) -> None:
        self._search.hint(answer)
        link.close("it is not the active controller any more")

    # -- requests ------------------------------------------------------------------------------------------------------

    def _opened(self) -> Link:
        """Returns the link. Raises ControllerUnreachable with the reason why there is none."""
        if self.state is LinkState.CLOSED:
            raise ControllerUnreachable("the link was closed")
        if self._link is None or not self._link.is_open:
            raise ControllerUnreachable(self._search.why_not())
        return self._link

    async def _exchange(self, link: Link, kind: Kind, request: wire.Message, *, extra_ms: float = 0) -> Message:
        """Send a request and wait for its answer.

        Args:
            extra_ms: added to the time limit.

        Raises:
            ControllerUnreachable: there is none.
            KactlError: it is an error.
        """
        limit_ms = self._limits.request_ms + extra_ms
        answer: Message | None = None
        with anyio.move_on_after(limit_ms / 1000):
            try:
                answer = await link.request(kind, wire.encode_pieces(request))
            except (LinkClosed, LaneFull) as error:
                raise ControllerUnreachable(f"controller {self._controller}: {error}") from error
        if answer is None:
            reason = f"controller {self._controller} sent no answer within {limit_ms:.0f} ms (limits.request_ms)"
            raise ControllerUnreachable(reason)
        if answer.error:
            head = answer.head
            raise self._decoded(link, lambda: wire.decode(head, wire.ERRORS))
        return answer

    def _decoded(self, link: Link, decode: Callable[[], Any]) -> Any:
        try:
            return decode()
        except MalformedMessage as error:
            link.abort(str(error))
            raise ControllerUnreachable(f"controller {self._controller}: {error}") from error

    @staticmethod
    def _one_way(link: Link, kind: Kind, head: bytes) -> None:
        try:
            link.one_way(kind, head)
        except (LinkClosed, LaneFull) as error:
            log.debug("a message of kind %s is lost: %s", kind.name, error)

    # -- the link ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause_ms = float(self._limits.backoff_ms)
        while True:
            found = await self._search.find()
            if found is None:
                log.debug("%s finds no active controller: %s", self._owner, self._search.why_not())
                if self._search.refusal is not None:
                    self._changed(self.state, self._search.why_not())
                await asyncio.sleep(pause_ms * self._rng.uniform(0.5, 1.5) / 1000)
                pause_ms = min(2 * pause_ms, self._limits.backoff_max_ms)
                continue
            pause_ms = float(self._limits.backoff_ms)
            reason = await self._use(found)
            self._search.reasons = {found.link.what: reason}
            # All participants lose their links at the same moment.
            await asyncio.sleep(self._rng.uniform(0, pause_ms) / 1000)

    async def _use(self, found: Found) -> str:
        """Use a link until its end. Returns the reason of that."""
        link, controller, self._term = found.link, found.controller, found.term
        self._link, self._controller = link, int(controller.name)
        self._dialer.metrics.opened(Role.CONTROLLER.value)
        try:
            self._began(link)
            link.serve(lambda message: self._received(link, message), silence_ms=controller.silence_ms)
            if link.is_open:
                self._set(LinkState.OPEN)
            return await asyncio.shield(link.closed)
        finally:
            self._link = None
            self._dialer.metrics.closed(Role.CONTROLLER.value)
            if self.state is LinkState.CLOSED:
                link.close(f"{self._owner} has closed it")
            else:
                self._set(LinkState.CONNECTING, link.reason)

    def _set(self, state: LinkState, reason: str = "") -> None:
        if self.state is not LinkState.CLOSED and self.state is not state:
            self.state = state
            self._changed(state, reason)
