"""Routing table that follows the active controller.

Two requests are under way at any time. One waits at the controller for the next change. The other is sent once a second
and answered at once; the time at which it was sent dates the table. Both responses are applied in the same way.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from kactl.decide.messages import arguments
from kactl.decide.messages.routes import RouteMessage, Version, Watch
from kactl.model import TopicPartition, TopicRef
from kactl.model.errors import (
    ActionTimedOut,
    BadRequest,
    ControllerUnreachable,
    IllegalState,
    KactlError,
    MalformedMessage,
    RoutesStale,
)
from kactl.runtime import forks
from kactl.runtime.background import Background, BlockStack
from kactl.runtime.clock import Clock, SystemClock
from kactl.runtime.logs import logger
from kactl.runtime.time_limit import limited
from kactl.stores.base import Store
from kactl.transports.base import SpectatorLink, SpectatorNetwork

from .routes import Route, RouteChange, RoutesReset
from .store_link import StoreNetwork
from .table import NOTHING, Cursor, RouteTable

log = logger(__name__)

POLL_MS: Final = 1_000
# The longest wait for a change; a controller that is gone is noticed by the polls.
WAIT_MS: Final = 10_000
# How long a response may take beyond its wait.
RESPONSE_MS: Final = 5_000
RETRY_MS: Final = 200
# How many changes a reader of `watch` receives from one look at the table.
CHANGES_AT_ONCE: Final = 1_000
_FOREVER_MS: Final = 2**31


class Spectator(forks.OfOneProcess):
    """Routing table of a program that hosts no partitions.

        network = kactl.TcpNetwork(controllers=["10.0.0.1:7373"])
        async with kactl.Spectator(network=network) as spectator:
            route = spectator.leader("orders", 7, max_age_ms=5_000)

    The table is kept, and its age grows, while no controller can be reached.

    Args:
        hub: the network of this process.
        network: any other network, in place of `hub`.
        controllers: addresses of the controllers, `host:port`, for a network that does not know them.
        store: in place of a network: the store of the cluster, which is opened and closed with the block.
        topics: those of interest; None for all.
        clock: the clock of ages and time limits; the system's if None.

    Raises:
        BadRequest: none of `hub`, `network` and `store` is given, or several are; or `controllers` without a network.
    """

    def __init__(
        self,
        controllers: Sequence[str] = (),
        *,
        hub: SpectatorNetwork | None = None,
        network: SpectatorNetwork | None = None,
        store: Store | None = None,
        topics: Sequence[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        given = [source for source in (hub, network, store) if source is not None]
        if len(given) != 1:
            raise BadRequest("network", "give one of hub, network and store")
        if isinstance(controllers, str):
            raise BadRequest("controllers", f"is one text, {controllers!r}: give a list of addresses")
        if controllers and network is None:
            raise BadRequest("controllers", "are addresses for a network: give network=kactl.TcpNetwork(...)")
        self._controllers = tuple(controllers)
        arguments.implements(network if hub is None else hub, SpectatorNetwork, "network")
        arguments.implements(store, Store, "store")
        self._clock: Clock = SystemClock() if clock is None else clock
        self._network = StoreNetwork(store, self._clock) if store is not None else network if hub is None else hub
        self._topics = None if topics is None else tuple(arguments.text(topic, "topics") for topic in topics)
        self._table = RouteTable()
        self._current_ms = -math.inf  # the table was up to date at this time
        self._changed = asyncio.Event()
        self._link: SpectatorLink | None = None
        self._stack: BlockStack | None = None
        self._is_entered = False
        self._home = forks.home()

    # -- life

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`."""
        gone: Any = forks.Gone("the spectator", self._home)
        self._table = self._link = gone

    async def __aenter__(self) -> Self:
        await self._open(interrupts=True)
        return self

    async def start(self) -> None:
        """Follow the controller until `aclose`, which any task may call: for programs that cannot keep a block open."""
        await self._open(interrupts=False)

    async def aclose(self) -> None:
        """Stop, as at the end of a block. Does nothing if the spectator is not open."""
        await self.__aexit__(None, None, None)

    async def _open(self, *, interrupts: bool) -> None:
        if self._is_entered:
            self._home.check("the spectator")
            raise IllegalState("the spectator has been entered before: make a new Spectator for each block")
        self._is_entered = True
        self._home = forks.share(self)
        assert self._network is not None, "checked by the constructor"
        async with BlockStack("the spectator") as stack:
            opened = self._network.spectator_side(controllers=self._controllers)
            self._link = await stack.enter_async_context(opened)
            tasks = await stack.enter_async_context(Background("the spectator", interrupts=interrupts))
            tasks.start_soon(self._follow)
            tasks.start_soon(self._poll)
            self._stack = stack.pop_all()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        stack, self._stack = self._stack, None
        return None if stack is None else await stack.__aexit__(kind, error, trace)

    async def wait_ready(self, *, timeout_ms: int = 30_000) -> Version:
        """Wait until there is a table. Returns its version.

        Raises:
            ActionTimedOut: no controller has sent one in that time.
        """

        async def received() -> None:
            while self._table.version == NOTHING:
                await self._changed.wait()

        await limited(self._clock, timeout_ms, received, ActionTimedOut("receiving the first routes", timeout_ms))
        return self._table.version

    # -- the table

    @property
    def version(self) -> Version:
        """The version of the table; (-1, -1) before there is one. It never falls."""
        return self._table.version

    @property
    def age_ms(self) -> float:
        """The time since the table was last known to be up to date; infinite before there is one."""
        return self._clock.monotonic_ms() - self._current_ms

    def leader(self, topic: str | TopicRef, partition: int, *, max_age_ms: float | None = None) -> Route | None:
        """Returns the route of a partition; None if it does not exist.

        Raises:
            RoutesStale: the table is older than `max_age_ms`.
        """
        if max_age_ms is not None and self.age_ms > max_age_ms:
            raise RoutesStale(self.age_ms, max_age_ms)
        return self._table.route(TopicPartition(arguments.topic(topic).name, partition))

    def routes(self, topic: str | TopicRef) -> Sequence[Route]:
        """Returns the routes of all partitions of a topic, in order; none if it does not exist."""
        return self._table.routes(arguments.topic(topic).name)

    async def watch(self, after: Version | None = None) -> AsyncIterator[RouteChange | RoutesReset]:
        """Yields changes of routes. A reader that falls behind receives only the newest route of each partition.

        Args:
            after: version of the last change that was seen; None for changes from now on.

        Yields:
            `RoutesReset`, followed by the whole table, if the changes after `after` are not all known.
        """
        cursor = Cursor(self._table, self._table.tick)
        if after is not None:
            await self.wait_ready(timeout_ms=_FOREVER_MS)
            cursor = Cursor(self._table, await self._resume(after))
        while True:
            if cursor.restarts():
                yield RoutesReset(self._table.version)
            changes = cursor.read(CHANGES_AT_ONCE)
            for change in changes:
                yield change
            if not changes:
                await self._changed.wait()

    async def _resume(self, after: Version) -> int | None:
        """Returns the tick after which every change is later than `after`; None if that is not known."""
        tick = self._table.tick_of(after)
        if tick is None and after <= self._table.version:
            with suppress(KactlError):
                self._table.rewind(after, await self._ask(Watch(after, 0, self._topics)))
                tick = self._table.tick_of(after)
        return tick

    # -- requests

    async def _follow(self) -> None:
        """Wait at the controller for changes, one request after the other."""
        while True:
            before = self._table.version
            if not await self._exchange(WAIT_MS):
                await self._clock.sleep_ms(RETRY_MS)
            elif self._table.version == before:
                # An older controller must not be able to keep this loop busy.
                await self._clock.sleep_ms(1)

    async def _poll(self) -> None:
        """Determine the age of the table at intervals."""
        while True:
            worked = await self._exchange(0)
            await self._clock.sleep_ms(POLL_MS if worked else RETRY_MS)

    async def _exchange(self, wait_ms: int) -> bool:
        """Send one request and apply the response. Returns False if there was none."""
        sent_ms = self._clock.monotonic_ms()
        after = None if self._table.version == NOTHING else self._table.version
        try:
            message = await self._ask(Watch(after, wait_ms, self._topics))
            if not self._table.apply(message):
                log.info("a response at version %s is dropped: the table has %s", message.version, self._table.version)
                return False
        except MalformedMessage as error:
            log.warning("a controller sent routes that cannot be read: %s", error)
            return False
        except KactlError as error:
            log.debug("no routes: %s", error)
            return False
        self._current_ms = max(self._current_ms, sent_ms - max(0.0, message.age_ms))
        if message.version != after:
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
        return True

    async def _ask(self, asked: Watch) -> RouteMessage:
        """Send a request, with a time limit.

        Raises:
            KactlError: there is no response.
        """
        link = self._link
        assert link is not None, "the block was entered"
        limit_ms = asked.wait_ms + RESPONSE_MS
        late = ControllerUnreachable(f"it sent no routes within {limit_ms} ms")
        return await limited(self._clock, limit_ms, lambda: link.watch(asked), late)
