"""Spectators of a simulated cluster: programs that follow the routes, and host nothing."""

import asyncio
import contextlib
import math
from collections.abc import Sequence
from typing import Final

from kactl.participant.spectator.spectator import Spectator
from kactl.testing.clock import LoopClock
from kactl.testing.history import History
from kactl.testing.loop import SimLoop
from kactl.testing.network import Network
from kactl.testing.nodes import Node
from tests.sim.engine.linked_network import LinkedNetwork

from .member import Member

# How often a spectator looks at its table.
LOOK_MS: Final = 500.0
# Time limit of a response, which is longer than most sessions: it may arrive after an election.
TIMEOUT_MS: Final = 5_000.0


class SpectatorMember(Member):
    """One spectator.

    Args:
        controllers: names of the nodes of all instances.
    """

    def __init__(
        self, name: str, loop: SimLoop, history: History, network: Network, *, controllers: Sequence[str]
    ) -> None:
        super().__init__(loop, history, name, self._run)
        self._network = network
        self._controllers = controllers

    async def _run(self, node: Node) -> None:
        view = LinkedNetwork(
            self._network, node, self._history, controllers=self._controllers, timeout_ms=TIMEOUT_MS
        )  # fmt: skip
        with contextlib.suppress(asyncio.CancelledError):
            async with Spectator(network=view, clock=LoopClock()) as spectator:
                while True:
                    await asyncio.sleep(LOOK_MS / 1000)
                    if math.isfinite(spectator.age_ms):
                        epoch, seq = spectator.version
                        self._history.record(
                            "routes.seen",
                            node=node.name,
                            controller_epoch=epoch,
                            seq_number=seq,
                            age_ms=spectator.age_ms,
                        )
