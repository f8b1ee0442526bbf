"""Requests to a broker that does not respond for a while, counted after it responds again.

Meanwhile other brokers of one rack fail and return, one after the other. The first of them fails earlier than the
others, because a broker counts as slow only when a request has waited for it. With `parity` all requests are sent, as
by Kafka's controller; without, queued requests are coalesced."""

import asyncio
import time
from typing import Final

from kactl.actors.system import Controller
from kactl.decide.messages.control import Request, Response
from kactl.model import Broker

from .brokers import Encoding, EncodingConnection
from .clusters import Racked
from .figures import Found
from .hosting import SESSION_MS, backing, is_busy, load, quiet, registered, until

_HOLDER, _CONTROLLER = 900, 901
# Maximum number of other brokers that fail and return while it is slow.
_FAILURES: Final = 6
# A channel considers its queue when the oldest request has waited for a second.
_SLOW_S: Final = 1.2
_LIMIT_S: Final = 300


class Slow(Encoding):
    """Transport on which all brokers respond immediately, except one that can be paused."""

    def __init__(self, broker: int) -> None:
        super().__init__(client_id=_CONTROLLER)
        self.broker = broker
        self.may_take = asyncio.Event()
        self.may_take.set()
        self.taken = self.taken_bytes = 0

    def connect(self, broker: Broker) -> EncodingConnection:
        return SlowConnection(self, broker.id)


class SlowConnection(EncodingConnection):
    def __init__(self, brokers: Slow, broker: int) -> None:
        super().__init__(brokers, broker)
        self._slow = brokers
        self._is_slow = broker == brokers.broker

    async def deliver(self, request: Request) -> Response:
        if not self._is_slow:
            return await super().deliver(request)
        await self._slow.may_take.wait()
        response, size = await self._slow.taking(self._broker, request)
        self._slow.taken += 1
        self._slow.taken_bytes += size
        return response


async def slow_broker(shape: Racked, *, runs: int, found: Found) -> None:
    """Measures a cluster with a slow last broker, in turn with and without coalescing."""
    for _ in range(runs):
        for how, parity in (("put together", False), ("parity", True)):
            at = f"slow broker/{shape.partitions}/{how}"
            brokers = Slow(shape.brokers)
            async with backing("memory") as opened, opened() as holder:
                fence = await holder.contest(_HOLDER)
                await load(holder, shape, fence)
                controller = Controller(
                    _CONTROLLER, store=opened(), transport=brokers, auto_balance=False, parity=parity
                )
                async with registered(holder, shape) as sessions, controller:
                    await holder.resign(fence)
                    await controller.wait_active(timeout_ms=_LIMIT_S * 1000)
                    await _idle(controller)
                    await quiet(controller, limit_s=_LIMIT_S)
                    brokers.may_take.clear()
                    brokers.taken = brokers.taken_bytes = 0
                    used = time.process_time()
                    others = range(1, shape.brokers - shape.replication_factor, shape.replication_factor)
                    for broker in others[:_FAILURES]:
                        await sessions[broker - 1].close()
                        await _seen(controller, broker, there=False)
                        sessions[broker - 1] = await holder.new_session(SESSION_MS)
                        await sessions[broker - 1].register(shape.registered()[broker - 1])
                        await _seen(controller, broker, there=True)
                        if broker == 1:
                            await asyncio.sleep(_SLOW_S)
                    waiting = len(controller.channels[shape.brokers])
                    began = time.perf_counter()
                    brokers.may_take.set()
                    await quiet(controller, limit_s=_LIMIT_S)
                    found.add(f"{at}/until it knows all", "ms", (time.perf_counter() - began) * 1e3)
                    found.add(f"{at}/processor", "ms", (time.process_time() - used) * 1e3)
                    found.add(f"{at}/waiting", "count", waiting)
                    found.add(f"{at}/requests", "count", brokers.taken)
                    found.add(f"{at}/bytes", "MB", brokers.taken_bytes / 1e6)


async def _idle(controller: Controller) -> None:
    """Waits until every event is handled; requests to the slow broker may remain queued."""
    await until(lambda: not is_busy(controller), limit_s=_LIMIT_S)


async def _seen(controller: Controller, broker: int, *, there: bool) -> None:
    await until(lambda: (broker in controller.cluster.brokers) == there, limit_s=_LIMIT_S)
    await _idle(controller)
