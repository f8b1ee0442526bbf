"""Random histories of a cluster from one seed: two controllers over one store, brokers, operators and tools.

Everything that can happen does, at random, over a store that fails at random. All events are recorded, so that a failed
history can be read; `open_storm(seed)` repeats it. `checks` has the invariants at every moment and at rest.
"""

import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from opentelemetry.metrics import NoOpMeterProvider

from kactl.actors.system import Controller
from kactl.errors import KactlError
from kactl.messages.admin import UndrainRequested
from tests.support.clocks import settle

from .base import BROKERS, CONTROLLERS
from .brokers import BrokerHappenings
from .isrs import IsrHappenings
from .moves import MoveHappenings
from .topics import TopicHappenings

# Weight of each event.
WEIGHTS: Final = {
    "create": 8, "delete": 5, "mark": 2, "grow": 4, "grow_by_hand": 1, "vanish": 1, "recreate": 2, "config": 1,
    "stop": 5, "start": 8, "bounce": 4, "drain": 2, "undrain": 1, "leave": 2, "fail_dir": 3, "undeletable": 1,
    "silence": 2, "slow": 2, "hear": 3, "forget": 1, "move": 9, "cancel": 3, "move_stored": 3, "elect": 4,
    "elect_stored": 2, "propose": 14, "nonsense": 3, "producer_ids": 1, "resign": 2, "expire": 2, "time": 12,
}  # fmt: skip


class Storm(TopicHappenings, BrokerHappenings, MoveHappenings, IsrHappenings):
    """A random history. Created by `open_storm`."""

    async def happens(self) -> None:
        """Run one random event; often its consequences settle before the next one."""
        self.number += 1
        what = self.dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        with contextlib.suppress(KactlError):  # an expected failure of an admin or a broker
            await getattr(self, what)()
        if self.dice.random() < 0.6:
            await settle()

    async def resign(self) -> None:
        controller = self.dice.choice(self.controllers)
        self.note(f"{controller.node_id} is asked to resign")
        self.ask(controller.resign())

    async def expire(self) -> None:
        controller = self.dice.choice(self.controllers)
        self.note(f"the session of {controller.node_id} ends")
        controller.store.expire()  # type: ignore[attr-defined]

    async def time(self) -> None:
        await self.wait(self.dice.choice((10, 300, 2_000, 5_000)))

    async def wait(self, delay_ms: float) -> None:
        """Advance the clock and keep the brokers' sessions alive."""
        for session in self.sessions.values():
            await session.keep_alive()
        self.note(f"{delay_ms:g} ms pass")
        await self.clock.advance(delay_ms)

    async def calm(self) -> None:
        """Nothing fails any more, all brokers are up, those that a failure has marked have started anew, leaders take
        everybody in; and so long until everything has followed from it."""
        self.note("calm")
        self.weather.rate = 0.0
        self.hasty = False
        self.fleet.calm()
        await settle()
        for broker in BROKERS:
            if broker not in self.sessions:
                await self.start(broker)
            elif broker in self.fleet.said_failed:
                await self.bounce(broker)
        for _ in range(12):
            await self.wait(2_000)
        if self.active is not None:
            self.marked = self.active.cluster.shutting_down
            for broker in BROKERS:
                self.ask(self.active.ask(UndrainRequested(broker)))
        for _ in range(50):
            for host, name, held in list(self.fleet.leaders()):
                if name.topic in self.topics():
                    members = frozenset(held.replicas) & self.fleet.hosts.keys()
                    await self.proposes(host, name, held, members | {host.id})
            await self.wait(2_000)


@asynccontextmanager
async def open_storm(seed: int) -> AsyncIterator[Storm]:
    """Open two controllers and registered brokers."""
    storm = Storm(seed)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(storm.store)
        for broker in BROKERS:
            await storm.start(broker)
        for node_id in CONTROLLERS:
            controller = Controller(
                node_id,
                store=storm.store.another(),
                transport=storm.fleet,
                clock=storm.clock,
                # Without a provider OpenTelemetry keeps all instruments, and with them each controller, forever.
                meter_provider=NoOpMeterProvider(),
                **storm.options,
            )
            storm.controllers.append(await stack.enter_async_context(controller))
            await settle()
            storm.weather.over(controller.store)
            storm.asks_meanwhile(controller)
        yield storm
        for asked in storm.asked:
            asked.cancel()
        await settle()
