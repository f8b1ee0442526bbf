"""The search for the active controller among the addresses of all of them."""

import collections
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import anyio

from kactl.decide.messages.sessions import NotController
from kactl.model import NO_BROKER
from kactl.model.errors import KactlError, NotAuthorized, ProtocolMismatch
from kactl.runtime.clock import Clock

from .addresses import Address
from .dialing import Dialer
from .handshake import Hello
from .identity import Role
from .link import Link
from .served import Term


class Found(NamedTuple):
    """A link that an active controller has welcomed.

    Attributes:
        controller: the claims of the controller.
        term: its controllership.
        broker: the id of a participant that was given one.
    """

    link: Link
    controller: Hello
    term: Term
    broker: int


class ControllerSearch:
    """Tries addresses, some at a time.

    Args:
        addresses: returns the addresses of all controllers.
        hello: returns the claims of this side.
        why_foreign: returns why a controllership is of another store; empty if it is not, or if that is unknown.

    Attributes:
        reasons: of the last search, by address, why no link was opened.
        refusal: the error of one address, if every address of the last search has refused the link for good.
    """

    def __init__(
        self,
        dialer: Dialer,
        *,
        addresses: Callable[[], Sequence[Address]],
        hello: Callable[[], Hello],
        rng: random.Random,
        clock: Clock,
        why_foreign: Callable[[Term], Awaitable[str]] | None = None,
    ) -> None:
        self.reasons: dict[str, str] = {}
        self.refusal: NotAuthorized | ProtocolMismatch | None = None
        self._dialer = dialer
        self._addresses = addresses
        self._hello = hello
        self._rng = rng
        self._clock = clock
        self._why_foreign = why_foreign
        self._hint: Address | None = None

    def hint(self, answer: NotController) -> None:
        """Begin the next search with the address in an answer, if it has one."""
        self._hint = _address_in(answer)

    def why_not(self) -> str:
        """Returns each address with its reason."""
        listed = "; ".join(
            reason if reason.startswith(address) else f"{address}: {reason}" for address, reason in self.reasons.items()
        )
        return listed or "no controller has been reached yet"

    async def find(self) -> Found | None:
        """Try all addresses once, in random order. Returns the first link that an active controller welcomes."""
        addresses = list(self._addresses())
        waiting = collections.deque(self._rng.sample(addresses, len(addresses)))
        if self._hint is not None:
            waiting.appendleft(self._hint)
            self._hint = None
        tried: set[Address] = set()
        found: list[Found] = []
        reasons: dict[str, str] = {}
        refusals: list[NotAuthorized | ProtocolMismatch] = []

        async def attempt() -> None:
            while waiting and not found:
                address = waiting.popleft()
                if address in tried:
                    continue
                tried.add(address)
                try:
                    link, controller, term, broker = await self._dial(address)
                except KactlError as error:
                    reasons[str(address)] = str(error)
                    if isinstance(error, NotAuthorized | ProtocolMismatch):
                        refusals.append(error)
                    continue
                if isinstance(term, NotController):
                    reasons[str(address)] = f"controller {controller.name} is not active"
                    if (hint := _address_in(term)) is not None:
                        waiting.appendleft(hint)
                elif found:
                    link.abort("another link was opened first")
                else:
                    found.append(Found(link, controller, term, broker))
                    tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(self._dialer.limits.dials):
                    tasks.start_soon(attempt)
        except BaseException:
            for one in found:
                one.link.abort("the search was cancelled")
            raise
        self.reasons = reasons
        self.refusal = refusals[0] if refusals and len(refusals) == len(tried) else None
        return found[0] if found else None

    async def _dial(self, address: Address) -> tuple[Link, Hello, Term | NotController, int]:
        """Open a link to a controller. Returns the broker id in its welcome, too.

        Raises:
            NotAuthorized: among others: it is of another store.
        """
        asked_ns = self._clock.lease_ns()
        link, controller, answer = await self._dialer.dial(address, self._hello(), is_controller)
        if isinstance(answer, NotController):
            return link, controller, answer, NO_BROKER
        term = Term(controller.name, answer.controller_epoch, asked_ns, self._clock.lease_ns(), answer.active_ms)
        if self._why_foreign is not None:
            try:
                if foreign := await self._why_foreign(term):
                    raise NotAuthorized(foreign)
            except BaseException:
                link.abort("its controller is not the one of this program")
                raise
        return link, controller, term, answer.broker


def is_controller(hello: Hello) -> str | None:
    """Returns why a listener is not the controller that is searched for; None if it is."""
    if hello.role is not Role.CONTROLLER or not (hello.name.isascii() and hello.name.isdecimal()):
        return f"it is {hello.identity}, and no controller"
    return None


def _address_in(answer: NotController) -> Address | None:
    try:
        return Address.parse(answer.address, "address") if answer.address else None
    except KactlError:
        return None
