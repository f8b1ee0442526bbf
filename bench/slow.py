"""A broker that takes nothing for a while: how much it is sent once it takes again.

Meanwhile others of one rack fail and come back, one after the other; the first of them a while before the others, since
a broker counts as slow only when something has waited for it. With `parity` everything that was said meanwhile is sent,
as Kafka's controller does; without, what waits is put together.
"""

import asyncio
import time
from typing import Final

from kactl.actors.system import Controller
from kactl.messages.control import Request, Response
from kactl.model import Broker

from .brokers import Encoding, EncodingConnection
from .clusters import Racked
from .figures import Found
from .hosting import SESSION_MS, backing, is_busy, load, quiet, registered, until

_HOLDER, _CONTROLLER = 900, 901
# How many others fail and come back while it is slow, at the most.
_FAILURES: Final = 6
# A channel looks at what waits when the oldest of it has waited for a second.
_SLOW_S: Final = 1.2
_LIMIT_S: Final = 300


class Slow(Encoding):
    """Every broker takes everything at once, but one of them only while it may."""

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
    """The last broker of a cluster is slow; both ways by turns."""
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
    """Wait until every event is handled; what is left for the slow broker may wait."""
    await until(lambda: not is_busy(controller), limit_s=_LIMIT_S)


async def _seen(controller: Controller, broker: int, *, there: bool) -> None:
    await until(lambda: (broker in controller.cluster.brokers) == there, limit_s=_LIMIT_S)
    await _idle(controller)
