"""Random events over a store that fails at random: once it fails no more, the cluster comes to order by itself.

Every run has new seeds; see `storms.seeds`. A story that fails prints its seed; `_storm(seed)` tells it again.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from opentelemetry.metrics import NoOpMeterProvider

from kactl.errors import KactlError, StoreError, StoreUnavailable
from kactl.messages.admin import ElectionKind
from kactl.model import Assignment
from tests.support import storm_seeds
from tests.support.clocks import settle
from tests.support.controller_harness import World, world

pytestmark = pytest.mark.anyio

BROKERS = (1, 2, 3)
METHODS = (
    "controller", "contest", "resign", "brokers", "broker", "topics", "assignments", "write_assignment",
    "topic_configs", "default_config", "deletions", "leaderships", "commit", "isr_notifications",
    "log_dir_notifications", "delete_notifications",
)  # fmt: skip


class Weather:
    """Lets calls of a store fail: before anything was done, after it was, or by a bug."""

    def __init__(self, dice: random.Random, rate: float) -> None:
        self.dice = dice
        self.rate = rate

    def over(self, store: Any) -> None:
        for name in METHODS:
            setattr(store, name, self._failing(getattr(store, name)))

    def _failing(self, real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **named: Any) -> Any:
            if self.dice.random() >= self.rate:
                return await real(*args, **named)
            if self.dice.random() < 0.4:
                await real(*args, **named)
                raise StoreUnavailable("the answer was lost")  # all others say that nothing was done
            raise self.dice.choice((StoreUnavailable("away"), StoreError("refused"), ZeroDivisionError("a bug")))

        return call


def _let(ask: Coroutine[Any, Any, Any]) -> None:
    """Somebody asks, and does not mind what becomes of it."""
    asyncio.ensure_future(ask).add_done_callback(lambda task: task.cancelled() or task.exception())


async def _happens(w: World, dice: random.Random, number: int) -> None:
    what = dice.choice(
        ("create", "grow", "stop", "start", "bounce", "dir", "elect", "resign", "expire", "time", "time")
    )
    up, topics = list(w.sessions), list(w.store.state.topics)
    if what == "create":
        await w.create(f"t{number}", [dice.sample(BROKERS, dice.randint(1, 3)) for _ in range(dice.randint(1, 3))])
    elif what == "grow" and topics:
        name = dice.choice(topics)
        held = {at.partition: replicas for at, replicas in (await w.store.assignments([name])).items()}
        grown = held | {len(held): Assignment(tuple(dice.sample(BROKERS, 2)))}
        await w.store.write_assignment(w.store.state.topics[name].ref, grown, None)
    elif what == "stop" and up:
        await w.stop(dice.choice(up))
    elif what == "start" and len(up) < len(BROKERS):
        await w.start(dice.choice([broker for broker in BROKERS if broker not in up]))
    elif what == "bounce" and up:
        await w.start(dice.choice(up))
    elif what == "dir":
        broker = dice.choice(BROKERS)
        w.brokers.failed_dirs[broker] = {f"t{dice.randrange(number + 1)}-0"}
        await w.store.notify_log_dir(broker)
    elif what == "elect":
        _let(w.controller.elect(dice.choice(list(ElectionKind))))
    elif what == "resign":
        _let(w.controller.resign())
    elif what == "expire":
        w.controller.store.expire()  # type: ignore[attr-defined]
    elif what == "time":
        await _pass(w, dice.choice((10, 300, 2_000, 5_000)))
    if dice.random() < 0.5:
        await settle()


async def _pass(w: World, delay_ms: float) -> None:
    for session in w.sessions.values():
        await session.keep_alive()
    await w.clock.advance(delay_ms)


async def _storm(seed: int) -> None:
    dice = random.Random(seed)
    async with world(*BROKERS, unclean=dice.random() < 0.3, meter_provider=NoOpMeterProvider()) as w:
        weather = Weather(dice, rate=dice.choice((0.0, 0.05, 0.15, 0.3)))
        weather.over(w.controller.store)
        for number in range(dice.randrange(10, 40)):
            with contextlib.suppress(KactlError):  # an admin's or a broker's own failure
                await _happens(w, dice, number)
        weather.rate = 0
        for _ in range(90):
            await _pass(w, 1_000)

        cluster = w.controller.cluster
        assert w.controller.is_active
        assert w.controller.loop.controllership.ready
        assert sorted(cluster.brokers) == sorted(w.sessions)
        assert sorted(topic.name for topic in w.controller.topics()) == sorted(w.store.state.topics)
        assert len(cluster.table) == len(await w.store.assignments(list(w.store.state.topics)))
        assert not w.controller.loop._later
        await w.check()
        for row in cluster.table.all().tolist():
            view = cluster.table.view(row)
            online = {broker for broker in view.replicas if cluster.is_replica_online(broker, view.name)}
            assert view.leader in online or not online & set(view.isr), view
            assert len(view.isr) == 1 or set(view.isr) <= online, view


@pytest.mark.parametrize("begin", storm_seeds.block_starts(100))
async def test_the_cluster_comes_to_order_after_any_storm(begin: int) -> None:
    for seed in storm_seeds.block_of(begin):
        try:
            await _storm(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
