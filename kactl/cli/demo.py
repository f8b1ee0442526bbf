"""`kactl up --demo`: kill a broker, elect new leaders, restart it, and print each change of leadership."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio
import click

from kactl.actors.system import Controller
from kactl.config.settings import Config
from kactl.decide.messages.admin import ElectionKind
from kactl.decide.messages.log import BrokerEvent, PartitionEvent
from kactl.model import NO_LEADER, TopicPartition
from kactl.runtime.background import Background

from . import output
from .common_options import command_for
from .exits import Exit, Failure
from .output import BAD, GOOD, PLAIN
from .serving import Server
from .setup import Stop

TOPIC: Final = "orders"
PARTITIONS: Final = 12
REPLICATION: Final = 3
VICTIM: Final = 1
# Time to read the output before the next step.
PAUSE_S: Final = 3.0
# Afterwards the topic is requested all the same, and the error names the brokers.
LINK_TIMEOUT_S: Final = 30.0
_ROW: Final = "{:<12}  {:<12}  {:<8}  {:>5}  {}"


def check_demo(config: Config) -> None:
    """Check that there are enough participants.

    Raises:
        Failure: USAGE; there are fewer than replicas.
    """
    if config.participants.count < REPLICATION:
        raise Failure(
            f"--demo: {config.participants.count} participants are too few for {REPLICATION} replicas: "
            f"start at least {REPLICATION} with --participants",
            Exit.USAGE,
        )


async def run_demo(server: Server, stop: Stop, *, session_timeout_ms: int) -> None:
    """Run the demo once, then print leadership changes until stopped."""
    printer = DemoPrinter(server.controller)
    async with Background("the demo") as tasks:
        tasks.start_soon(printer.follow)
        tasks.start_soon(_run_steps, server, printer, session_timeout_ms)
        await stop.wait()


async def _run_steps(server: Server, printer: "DemoPrinter", session_timeout_ms: int) -> None:
    controller, participants, address = server
    assert participants is not None
    # With a network the participants of this process connect to the controller like those of others.
    with anyio.move_on_after(LINK_TIMEOUT_S):
        while controller.cluster.fenced:  # noqa: ASYNC110 - no event tells
            await anyio.sleep(0.02)
    if controller.cluster.table.topic(TOPIC) is None:
        printer.print(f"creating topic {TOPIC}: {PARTITIONS} partitions with {REPLICATION} replicas each")
        await controller.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=REPLICATION)
    elif controller.snapshot().preferred_imbalance:
        printer.print("electing the preferred leaders, as `kactl elect preferred --all` does")
        await controller.elect(ElectionKind.PREFERRED)
    await printer.wait_until(lambda: is_led(controller))
    printer.print(f"every partition has a leader; killing broker {VICTIM} in {PAUSE_S:g} s")
    await anyio.sleep(PAUSE_S)

    led = printer.led_by(VICTIM)
    killed_ms = controller.clock.monotonic_ms()
    await participants.kill(VICTIM)
    printer.print(
        f"broker {VICTIM} is killed; it leads {output.count(led, 'partition')}. "
        f"The controller notices when its session expires, {session_timeout_ms / 1000:g} s after the last heartbeat.",
        BAD,
    )
    await printer.wait_until(lambda: VICTIM in printer.failed and is_led(controller))
    recovered_ms = controller.clock.monotonic_ms()
    expired_ms = printer.failed[VICTIM]
    printer.print(
        f"every partition has a leader again: {(recovered_ms - killed_ms) / 1000:.2f} s after the kill, "
        f"{recovered_ms - expired_ms:.0f} ms after its session expired",
        GOOD,
    )
    await anyio.sleep(PAUSE_S)

    restarted_ms = controller.clock.monotonic_ms()
    await participants.restart(VICTIM)
    printer.print(f"broker {VICTIM} is restarted; its replicas catch up")
    await printer.wait_until(lambda: is_led(controller) and not controller.snapshot().under_replicated_partitions)
    in_sync_ms = controller.clock.monotonic_ms() - restarted_ms
    printer.print(f"every replica is in sync again, {in_sync_ms / 1000:.2f} s after the restart", GOOD)
    printer.print(
        f"the demo is complete; the cluster continues to run. `{command_for(address.url)} elect preferred --all` "
        f"makes broker {VICTIM} lead again"
    )


def is_led(controller: Controller) -> bool:
    """Returns whether every partition has a live leader."""
    cluster = controller.cluster
    leaderless = cluster.table.led_by_none_of(cluster.live_brokers.live)
    return not len(leaderless) and not controller.snapshot().offline_partitions


class DemoPrinter:
    """Prints the steps of the demo and each change of leadership.

    Attributes:
        failed: time at which the failure of each broker was detected, ms of the monotonic clock.
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
        """Print the events that follow the construction of this object."""
        async for event in self._controller.events(after=self._seen):
            if isinstance(event, PartitionEvent):
                self._print_change(event)
            elif isinstance(event, BrokerEvent) and event.what == "failed":
                self.failed[event.broker] = self._controller.clock.monotonic_ms()
            self._seen = event.seq
            self._progress.set()
            self._progress = anyio.Event()

    async def wait_until(self, reached: Callable[[], bool]) -> None:
        """Wait until the condition holds and all events have been printed."""
        while self._seen < self._controller.history.seq or not reached():
            await self._progress.wait()

    def led_by(self, broker: int) -> int:
        """Returns the number of partitions that a broker leads."""
        return sum(leader == broker for leader in self._leader.values())

    def print(self, text: str, colour: Mapping[str, Any] = PLAIN) -> None:
        """Print one step of the demo."""
        click.echo(f"{self._now()}  {click.style(text, **colour)}")
        self._under_header = False

    def _print_change(self, event: PartitionEvent) -> None:
        name = TopicPartition(event.topic, event.partition)
        before, self._leader[name] = self._leader.get(name, NO_LEADER), event.leader
        if before == event.leader:
            return
        if not self._under_header:
            click.echo(_ROW.format("TIME", "PARTITION", "LEADER", "EPOCH", "ISR"))
            self._under_header = True
        change = f"{output.broker(before)} -> {output.broker(event.leader)}"
        row = _ROW.format(
            output.time_of_day(event.time_ms), str(name), change, event.leader_epoch, output.numbers(event.isr)
        )
        click.secho(row, **(BAD if event.leader == NO_LEADER else PLAIN))

    def _now(self) -> str:
        return output.time_of_day(self._controller.clock.now_ms())
