"""`kactl up --demo`: a broker dies, others lead, it comes back; shown as it happens."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio
import click

from kactl.actors.system import Controller
from kactl.config.settings import Config
from kactl.messages.admin import ElectionKind
from kactl.messages.log import BrokerEvent, PartitionEvent
from kactl.model import NO_LEADER, TopicPartition
from kactl.runtime.background import Background

from . import output
from .exits import Exit, Failure
from .output import BAD, GOOD, PLAIN
from .serving import Server
from .settings import command_for
from .setup import Stop

TOPIC: Final = "orders"
PARTITIONS: Final = 12
REPLICATION: Final = 3
VICTIM: Final = 1
# Long enough to read what stands there before it moves.
PAUSE_S: Final = 3.0
_ROW: Final = "{:<12}  {:<12}  {:<8}  {:>5}  {}"


def check_demo(config: Config) -> None:
    """Whether there are brokers enough for one to die.

    Raises:
        Failure: USAGE.
    """
    if config.participants.count < REPLICATION:
        raise Failure(
            f"--demo: {config.participants.count} participants are too few for {REPLICATION} replicas: "
            f"ask for at least {REPLICATION} with --participants",
            Exit.USAGE,
        )


async def run_demo(server: Server, stop: Stop, *, session_timeout_ms: int) -> None:
    """Run the demo once, then print leadership changes until stopped."""
    shown = Shown(server.controller)
    async with Background("the demo") as tasks:
        tasks.start_soon(shown.follow)
        tasks.start_soon(_story, server, shown, session_timeout_ms)
        await stop.asked()


async def _story(server: Server, shown: "Shown", session_timeout_ms: int) -> None:
    controller, participants, address = server
    assert participants is not None
    if controller.cluster.table.topic(TOPIC) is None:
        shown.say(f"creating topic {TOPIC}: {PARTITIONS} partitions with {REPLICATION} replicas each")
        await controller.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=REPLICATION)
    elif controller.snapshot().preferred_imbalance:
        shown.say("electing the preferred leaders, as `kactl elect preferred --all` does")
        await controller.elect(ElectionKind.PREFERRED)
    await shown.until(lambda: is_led(controller))
    shown.say(f"every partition has a leader; broker {VICTIM} will be killed in {PAUSE_S:g} s")
    await anyio.sleep(PAUSE_S)

    led = shown.led_by(VICTIM)
    killed = controller.clock.monotonic_ms()
    await participants.kill(VICTIM)
    shown.say(
        f"broker {VICTIM} is killed; it leads {output.count(led, 'partition')}. "
        f"Nobody knows until its session expires, {session_timeout_ms / 1000:g} s after its last word ...",
        BAD,
    )
    await shown.until(lambda: VICTIM in shown.failed and is_led(controller))
    led_again = controller.clock.monotonic_ms()
    noticed = shown.failed[VICTIM]
    shown.say(
        f"every partition has a leader again: {(led_again - killed) / 1000:.2f} s after the kill, "
        f"{led_again - noticed:.0f} ms after its session expired",
        GOOD,
    )
    await anyio.sleep(PAUSE_S)

    restarted = controller.clock.monotonic_ms()
    await participants.restart(VICTIM)
    shown.say(f"broker {VICTIM} is started again, and follows")
    await shown.until(lambda: is_led(controller) and not controller.snapshot().under_replicated_partitions)
    whole_ms = controller.clock.monotonic_ms() - restarted
    shown.say(f"every replica is in sync again, {whole_ms / 1000:.2f} s after the restart", GOOD)
    shown.say(
        f"that was the demo; the cluster goes on. `{command_for(address.url)} elect preferred --all` "
        "gives the broker its partitions back"
    )


def is_led(controller: Controller) -> bool:
    """Whether every partition has a leader that is alive."""
    cluster = controller.cluster
    without = cluster.table.led_by_none_of(cluster.live_brokers.live)
    return not len(without) and not controller.snapshot().offline_partitions


class Shown:
    """Prints each change of leadership, and knows what has been printed.

    Attributes:
        failed: when each dead broker was found dead, by the monotonic clock, ms.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._seen = controller.history.seq
        self._progress = anyio.Event()
        self._under_header = False
        self.failed: dict[int, float] = {}
        views = [view for topic in controller.topics() for view in controller.partitions_of(topic.name)]
        self._leader = {view.name: view.leader for view in views}

    async def follow(self) -> None:
        """Print what happens from the moment on at which this was made."""
        async for event in self._controller.events(after=self._seen):
            if isinstance(event, PartitionEvent):
                self._take(event)
            elif isinstance(event, BrokerEvent) and event.what == "failed":
                self.failed[event.broker] = self._controller.clock.monotonic_ms()
            self._seen = event.seq
            self._progress.set()
            self._progress = anyio.Event()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until something holds and has been printed."""
        while self._seen < self._controller.history.seq or not reached():
            await self._progress.wait()

    def led_by(self, broker: int) -> int:
        """How many partitions a broker leads."""
        return sum(leader == broker for leader in self._leader.values())

    def say(self, text: str, colour: Mapping[str, Any] = PLAIN) -> None:
        """A line of the story."""
        click.echo(f"{self._now()}  {click.style(text, **colour)}")
        self._under_header = False

    def _take(self, event: PartitionEvent) -> None:
        name = TopicPartition(event.topic, event.partition)
        before, self._leader[name] = self._leader.get(name, NO_LEADER), event.leader
        if before == event.leader:
            return
        if not self._under_header:
            click.echo(_ROW.format("TIME", "PARTITION", "LEADER", "EPOCH", "ISR"))
            self._under_header = True
        moved = f"{output.broker(before)} -> {output.broker(event.leader)}"
        row = _ROW.format(
            output.time_of_day(event.time_ms), str(name), moved, event.leader_epoch, output.numbers(event.isr)
        )
        click.secho(row, **(BAD if event.leader == NO_LEADER else PLAIN))

    def _now(self) -> str:
        return output.time_of_day(self._controller.clock.now_ms())
