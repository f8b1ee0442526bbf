"""A program of a cluster over tcp: python cluster_program.py STORE ROLE ID ADDRESS[,ADDRESS] SESSIONS [OPTION ...]

STORE is `sqlite:FILE`, `zookeeper:HOST:PORT/PATH` or `etcd:CLUSTER@URL[,URL]`. SESSIONS is `store` or `controller`:
with which of them participants have their sessions. ROLE is

* `controller`, which listens on the first address,
* `participant`, which looks for controllers at all addresses,
* `node`: both in one process. The controller's id is higher by 99.
* `spectator`, which prints `reset` lines, and a line `table <time> <age> <version> <partition=leader epoch> ...` when
  its table or the whole second of its age has changed.

A controller creates the topic once enough brokers are registered. A participant prints a line `led <topic-partition>
<token> <from> <to> <end>` for each time that it has led, in ms of the boot time, and `leads` lines as they begin. `to`
is the last time at which the lease was valid, also after the process was stopped, and `end` when `lead` has ended. A
`lost` line is printed by each call of `lease_lost`, and a line `isr <topic-partition> <token> <leader epoch> <members>`
if the ISR has changed while it leads.

SIGUSR1 prints a line with the names of all tasks, and a line `resources <tasks> <descriptors> <resident KiB>`. SIGTERM
ends the program in order; the last line is `left <tasks>`. SIGUSR2 drains the broker that an option of the active
controller names.
"""

import argparse
import asyncio
import logging
import os
import signal
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import anyio.abc

import kactl
from kactl.model.errors import KactlError
from kactl.stores.base import Store
from kactl.transports.tcp import handshake

# Of the controllers, and of participants by the kind of their sessions. A lease has to last longer than the
# controllership of a killed controller and the search for the next one. A session must not expire because its renewal
# is late on a busy machine: of two members of an ISR, the one that was killed would remain.
CONTROLLER_MS = 2_000
SESSION_MS = {"store": 8_000, "controller": 12_000}
# Longer than anything is cut off or stopped here. Otherwise ISRs shrink while messages between participants are late or
# lost with a controller or a link. A member that is missing when its leader fails is not elected: nothing leads.
LAG_MS = 30_000
TOPIC, PARTITIONS, BROKERS = "orders", 6, 3
# A standby names no address of the active controller: participants behind proxies would connect to it without them.
NO_ADDRESS = "0.0.0.0:7373"
# Between two topics of `--load`, and between two checks of a leader.
LOAD_S = 0.25
CHECK_S = 0.01


def now_ms() -> float:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e6


def say(*words: object) -> None:
    print(*words, flush=True)


def open_store(text: str, timeout_ms: int | None) -> Store:
    kind, _, place = text.partition(":")
    options: dict[str, Any] = {} if timeout_ms is None else {"session_timeout_ms": timeout_ms}
    if kind == "sqlite":
        return kactl.SqliteStore(place, **options)
    if kind == "zookeeper":
        from kactl.stores.zookeeper import ZooKeeperStore

        return ZooKeeperStore(place, **options)
    from kactl.stores.etcd import EtcdStore

    cluster, _, urls = place.partition("@")
    return EtcdStore(urls.split(","), cluster=cluster, **options)


class Handler(kactl.PartitionHandler):
    async def lead(self, leader: kactl.Leader) -> None:
        if self.partition.topic != TOPIC:
            return
        began, isr = now_ms(), leader.isr
        last = began
        say("leads", self.partition, leader.token, began)
        try:
            while True:
                at = now_ms()
                leader.check()
                last = at
                if leader.isr != isr:
                    isr = leader.isr
                    say("isr", self.partition, leader.token, leader.leader_epoch, ",".join(map(str, isr)))
                await anyio.sleep(CHECK_S)
        except kactl.LeadershipLost:
            pass
        finally:
            say("led", self.partition, leader.token, began, last, now_ms())

    def lease_lost(self, leader: kactl.Leader) -> None:
        if self.partition.topic == TOPIC:
            say("lost", self.partition, leader.token, now_ms())


class Program:
    """One process of the cluster."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.addresses: list[str] = options.addresses.split(",")
        self.participant_store = options.participant_store or options.store
        self.controller: kactl.Controller | None = None

    async def control(self, node_id: int, network: kactl.TcpNetwork) -> None:
        store = open_store(self.options.store, None if self.options.defaults else self.options.controller_ms)
        balance_ms = self.options.balance_ms
        settings = kactl.ControllerSettings(
            auto_balance=balance_ms > 0, balance_interval_ms=balance_ms or 1, balance_percentage=0
        )
        async with kactl.Controller(node_id, store=store, network=network, settings=settings) as controller:
            self.controller = controller
            say("listens", network.address)
            was_active, in_sync, linked = False, set[int](), list[int]()
            while True:
                await anyio.sleep(0.05)
                now = controller.snapshot()
                if (now.active_id == node_id) != was_active:
                    was_active = not was_active
                    say("active" if was_active else "standby", now.epoch)
                if was_active and (members := _in_sync(controller)) != in_sync:
                    in_sync = members
                    say("in-sync", *sorted(in_sync))
                if was_active and (links := _linked(controller)) != linked:
                    linked = links
                    say("linked", *linked)
                if was_active and now.brokers >= self.options.brokers:
                    try:
                        await _ensure_topic(controller, self.options.brokers, self.options.leader)
                    except KactlError as error:
                        say("waits", error)  # a participant is still fenced, or another controller was elected

    async def participate(self, broker: int, network: kactl.TcpNetwork) -> None:
        timeout_ms = None if self.options.defaults else self.options.session_ms or SESSION_MS[self.options.sessions]
        async with AsyncExitStack() as stack:
            store = None
            if self.options.sessions == "store":
                store = await stack.enter_async_context(open_store(self.participant_store, timeout_ms))
            participant = kactl.Participant(
                broker,
                store=store,
                network=network,
                handler=Handler,
                session_timeout_ms=timeout_ms,
                lag_ms=self.options.lag_ms,
            )
            await stack.enter_async_context(participant)
            say("registered", participant.epoch)
            if self.options.load:
                await _load(participant, self.options.load)
            await participant.wait_closed()

    async def watch(self, network: kactl.TcpNetwork) -> None:
        async with kactl.Spectator(network=network) as spectator, anyio.create_task_group() as tasks:
            tasks.start_soon(_say_resets, spectator)
            before: list[object] = []
            while True:
                at, age_ms = now_ms(), spectator.age_ms
                routes = [spectator.leader(TOPIC, number) for number in range(PARTITIONS)]
                epochs = [f"{number}={route.leader_epoch}" for number, route in enumerate(routes) if route is not None]
                version = f"{spectator.version.controller_epoch}.{spectator.version.seq}"
                shown = [age_ms // 1000, version, *epochs]
                if shown != before:
                    before = shown
                    say("table", at, age_ms, version, *epochs)
                await anyio.sleep(0.02)

    async def run(self) -> None:
        number, role = self.options.id, self.options.role
        secret = {} if self.options.secret is None else {"secret": self.options.secret, "allow_plaintext": True}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.handle_signals, tasks.cancel_scope)
            if role == "participant":
                tasks.start_soon(self.participate, number, kactl.TcpNetwork(controllers=self.addresses, **secret))
            elif role == "spectator":
                tasks.start_soon(self.watch, kactl.TcpNetwork(controllers=self.addresses, **secret))
            elif role == "controller":
                network = kactl.TcpNetwork(listen=self.addresses[0], advertise=NO_ADDRESS, **secret)
                tasks.start_soon(self.control, number, network)
            else:
                network = kactl.TcpNetwork(listen=self.addresses[0], controllers=self.addresses)
                tasks.start_soon(self.control, number + 99, network)
                tasks.start_soon(self.participate, number, network)
        # Responses that were on their way need one turn to end.
        await anyio.sleep(0.1)
        say("left", len(asyncio.all_tasks()) - 1)

    async def handle_signals(self, scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2) as signals:
            async for number in signals:
                match number:
                    case signal.SIGTERM:
                        scope.cancel()
                        return
                    case signal.SIGUSR1:
                        _say_resources()
                    case signal.SIGUSR2 if self.controller is not None:
                        await self.controller.drain(self.options.drain)
                        say("drained", self.options.drain)


def _say_resources() -> None:
    resident = Path("/proc/self/statm").read_text().split()[1]
    kib = int(resident) * os.sysconf("SC_PAGE_SIZE") // 1024
    names = Counter(task.get_coro().__qualname__ for task in asyncio.all_tasks())  # type: ignore[union-attr]
    say("tasks", ", ".join(f"{count} {name}" for name, count in sorted(names.items())))
    say("resources", names.total(), len(os.listdir("/proc/self/fd")), kib)


async def _load(participant: kactl.Participant, topics: int) -> None:
    """Create topics, one after the other, and ensure the earlier ones from time to time."""
    for number in range(1_000_000):
        try:
            await participant.ensure_topic(f"load-{number % topics}", partitions=2, replication_factor=1)
        except KactlError as error:
            say("load", error)
        if number == topics:
            say("loaded", topics)
        await anyio.sleep(LOAD_S)


async def _say_resets(spectator: kactl.Spectator) -> None:
    async for change in spectator.watch(kactl.Version(0, 0)):
        if isinstance(change, kactl.RoutesReset):
            say("reset", spectator.version.controller_epoch)


def _in_sync(controller: kactl.Controller) -> set[int]:
    """Returns the members of all ISRs."""
    views = [controller.partition(f"{TOPIC}-{number}") for number in range(PARTITIONS)]
    return set.intersection(*(set() if view is None else set(view.isr) for view in views))


def _linked(controller: kactl.Controller) -> list[int]:
    """Returns the registered brokers with an open link."""
    views = {broker.id: controller.links.view(broker) for broker in controller.brokers()}
    return sorted(broker for broker, view in views.items() if view is not None and view.is_linked)


async def _ensure_topic(controller: kactl.Controller, brokers: int, leader: int | None) -> None:
    if controller.partition(f"{TOPIC}-0") is not None:
        return
    if leader is None:
        await controller.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=brokers)
    else:
        others = [broker for broker in range(1, brokers + 1) if broker != leader]
        await controller.create_topic(TOPIC, assignment=dict.fromkeys(range(PARTITIONS), (leader, *others)))
    say("created")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for argument in ("store", "role"):
        parser.add_argument(argument)
    parser.add_argument("id", type=int)
    for argument in ("addresses", "sessions"):
        parser.add_argument(argument)
    parser.add_argument("--participant-store", help="where participants find the store, if elsewhere")
    parser.add_argument("--session-ms", type=int)
    parser.add_argument("--controller-ms", type=int, default=CONTROLLER_MS)
    parser.add_argument("--defaults", action="store_true", help="all sessions have kactl's own timeouts")
    parser.add_argument("--lag-ms", type=int, default=LAG_MS)
    parser.add_argument("--balance-ms", type=int, default=0, help="how often preferred replicas are elected")
    parser.add_argument("--drain", type=int, help="the broker that SIGUSR2 drains")
    parser.add_argument("--brokers", type=int, default=BROKERS)
    parser.add_argument("--leader", type=int, help="the participant that leads all partitions")
    parser.add_argument("--load", type=int, default=0, metavar="TOPICS", help="a participant that creates topics")
    parser.add_argument("--secret", help="of all programs, for addresses that are not loopback")
    parser.add_argument("--speaks", metavar="MIN-MAX", help="versions of the protocol, in place of this release's")
    logging.basicConfig(level=logging.WARNING)
    options = parser.parse_args()
    if options.speaks:
        handshake.VERSION_MIN, handshake.VERSION_MAX = map(int, options.speaks.split("-"))  # type: ignore[misc]
    anyio.run(Program(options).run)
