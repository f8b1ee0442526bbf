"""A spectator on the tcp network: its link to the active controller."""

import random
from collections.abc import Callable, Sequence

from kactl.decide.messages import sessions
from kactl.decide.messages.routes import RouteMessage, Watch
from kactl.model.errors import ControllerUnreachable, NotController
from kactl.runtime.clock import SystemClock
from kactl.transports.tcp import wire

from . import handshake
from .addresses import Address
from .controller_link import ControllerLink
from .dialing import Dialer
from .framing import Kind
from .identity import ANY_NAME, Identity, Role
from .search import ControllerSearch


class TcpSpectatorLink(ControllerLink):
    """The `SpectatorLink` of one spectator. Its name is the one in its certificate."""

    def __init__(
        self, *, cluster: str, dialer: Dialer, addresses: Callable[[], Sequence[Address]], rng: random.Random
    ) -> None:
        identity = Identity(cluster, Role.SPECTATOR, ANY_NAME)
        silence_ms = dialer.limits.silence_ms
        search = ControllerSearch(
            dialer,
            addresses=addresses,
            hello=lambda: handshake.hello(identity, silence_ms=silence_ms),
            rng=rng,
            clock=SystemClock(),
        )
        super().__init__("a spectator", search, dialer, rng)

    async def watch(self, asked: Watch) -> RouteMessage:
        link = self._opened()
        try:
            answer = await self._exchange(link, Kind.METADATA, asked, extra_ms=asked.wait_ms)
        except NotController as error:
            self._sent_away(link, sessions.NotController(address=error.address))
            raise ControllerUnreachable(f"controller {self._controller} is not active any more") from error
        routes: RouteMessage = self._decoded(link, lambda: wire.decode(answer.head, wire.ROUTES))
        return routes
