"""A program of a cluster over tcp: python cluster_program.py FILE controller|participant ID ADDRESS[,ADDRESS] SESSIONS

SESSIONS is `store` or `controller`: with which of them participants have their sessions.

A controller creates the topic once three brokers are registered. A participant prints a line `led <topic-partition>
<token> <from> <to>` for each time that it has led, in ms of the boot time, and `leads` lines as they begin. The last
time at which the lease was valid ends the interval, also after the process was stopped.
"""

import sys
import time
from contextlib import AsyncExitStack

import anyio

import kactl

# Of the controllers, and of participants by the kind of their sessions. A lease has to last longer than the
# controllership of a killed controller and the search for the next one. A session must not expire because its renewal
# is late on a busy machine: of two members of an ISR, the one that was killed would remain.
CONTROLLER_MS = 2_000
SESSION_MS = {"store": 8_000, "controller": 12_000}
# Longer than anything is cut off or stopped here. Otherwise ISRs shrink while messages between participants are late or
# lost with a controller or a link. A member that is missing when its leader fails is not elected: nothing leads.
LAG_MS = 30_000
TOPIC, PARTITIONS, BROKERS = "orders", 6, 3


def now_ms() -> float:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e6


def say(*words: object) -> None:
    print(*words, flush=True)


class Handler(kactl.PartitionHandler):
    async def lead(self, leader: kactl.Leader) -> None:
        began = last = now_ms()
        say("leads", self.partition, leader.token, began)
        try:
            while True:
                at = now_ms()
                leader.check()
                last = at
                await anyio.sleep(0.01)
        except kactl.LeadershipLost:
            pass
        finally:
            say("led", self.partition, leader.token, began, last)


async def control(node_id: int, address: str) -> None:
    network = kactl.TcpNetwork(listen=address)
    store = kactl.SqliteStore(sys.argv[1], session_timeout_ms=CONTROLLER_MS)
    async with kactl.Controller(node_id, store=store, network=network) as controller:
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
            if was_active and now.brokers >= BROKERS:
                try:
                    await _ensure_topic(controller)
                except kactl.NotController:
                    continue


def _in_sync(controller: kactl.Controller) -> set[int]:
    """Returns the members of all ISRs."""
    views = [controller.partition(f"{TOPIC}-{number}") for number in range(PARTITIONS)]
    return set.intersection(*(set() if view is None else set(view.isr) for view in views))


def _linked(controller: kactl.Controller) -> list[int]:
    """Returns the registered brokers with an open link."""
    views = {broker.id: controller.links.view(broker) for broker in controller.brokers()}
    return sorted(broker for broker, view in views.items() if view is not None and view.is_linked)


async def _ensure_topic(controller: kactl.Controller) -> None:
    if controller.partition(f"{TOPIC}-0") is None:
        await controller.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=BROKERS)
        say("created")


async def participate(broker: int, addresses: str) -> None:
    network = kactl.TcpNetwork(controllers=addresses.split(","))
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(kactl.SqliteStore(sys.argv[1])) if sys.argv[5] == "store" else None
        timeout_ms = SESSION_MS[sys.argv[5]]
        participant = kactl.Participant(
            broker, store=store, network=network, handler=Handler, session_timeout_ms=timeout_ms, lag_ms=LAG_MS
        )
        await stack.enter_async_context(participant)
        say("registered", participant.epoch)
        await participant.wait_closed()


if __name__ == "__main__":
    role, number, address = sys.argv[2:5]
    anyio.run(control if role == "controller" else participate, int(number), address)
