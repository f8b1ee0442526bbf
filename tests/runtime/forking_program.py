"""A cluster in one program, whose leader forks, or the program beside it: python forking_program.py STORE CHILD [WHERE]

STORE is memory, or a SQLite file, or zookeeper://HOSTS, or an address of etcd. CHILD is what the child does. The
program prints one line for each finding of the child, "child ended with N", and "undisturbed" if the parent led on
under the same token for several sessions, over the same connections.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread

import kactl

SESSION_MS = 3_000
PATIENCE_S = 90
ADDRESS = ""


def store_of(text: str) -> kactl.Store:
    if text == "memory":
        return kactl.MemoryStore()
    if text.startswith("zookeeper://"):
        from kactl.stores.zookeeper import ZooKeeperStore

        return ZooKeeperStore(text.removeprefix("zookeeper://"), session_timeout_ms=6_000)
    return kactl.EtcdStore([text]) if text.startswith("http") else kactl.SqliteStore(text)


class Cluster:
    """What the child inherits."""

    controller: kactl.Controller
    participant: kactl.Participant
    beside: kactl.Participant
    spectator: kactl.Spectator
    leader: kactl.Leader | None = None


class Forks(kactl.PartitionHandler):
    async def lead(self, leader: kactl.Leader) -> None:
        Cluster.leader = leader
        await LED(leader)


async def LED(leader: kactl.Leader) -> None:  # noqa: N802 - replaced
    await anyio.sleep_forever()


def say(*parts: object) -> None:
    os.write(1, (" ".join(map(str, parts)) + "\n").encode())


async def report(name: str, call: Callable[[], Any]) -> None:
    try:
        result = call()
        if hasattr(result, "__await__"):
            with anyio.fail_after(PATIENCE_S / 3):
                result = await result
        say(name, "returned", result)
    except BaseException as error:
        say(name, "raised", type(error).__name__)


async def use_everything() -> None:
    """Call what the parent uses."""
    assert Cluster.leader is not None
    leader, controller, participant = Cluster.leader, Cluster.controller, Cluster.participant
    say("valid:", leader.is_valid)
    calls: dict[str, Callable[[], Any]] = {
        "check": leader.check,
        "token": lambda: leader.token,
        "tasks": lambda: leader.tasks,
        "resign": leader.resign,
        "report": lambda: leader.report(1, 1),
        "is_active": lambda: controller.is_active,
        "snapshot": controller.snapshot,
        "create_topic": lambda: controller.create_topic("more", partitions=1, replication_factor=1),
        "partition": lambda: controller.partition("t-0"),
        "events": controller.events,
        "store": controller.store.brokers,
        "leadership": lambda: participant.leadership("t-0"),
        "ensure_topic": lambda: participant.ensure_topic("more", partitions=1, timeout_ms=0),
        "restart": participant.restart,
        "enter": participant.__aenter__,
        "kill": participant.kill,
        "routes": lambda: Cluster.spectator.routes("t"),
        "another controller": kactl.Controller(5, store=again(), network=controller.network).__aenter__,
        "another participant": kactl.Participant(7, network=controller.network, handler=Forks).__aenter__,
    }
    for name, call in calls.items():
        await report(name, call)


def again() -> kactl.Store:
    """A new store over the files that the parent has open; over a server it would be a client of its own."""
    return store_of(sys.argv[1]) if sys.argv[1].endswith(".db") else kactl.MemoryStore()


async def begin_anew() -> None:
    """Become a participant, as a worker does."""
    async with kactl.Participant(9, network=kactl.TcpNetwork(controllers=[ADDRESS]), handler=Forks) as participant:
        await participant.wait_linked()
        say("linked anew")


async def child(what: str) -> None:
    match what:
        case "exit":
            sys.exit(3)
        case "raise":
            raise RuntimeError("a bug of the child")
        case "go on":
            try:
                await asyncio.sleep(60)
            finally:
                say("cancelled")
                sys.exit(4)
        case "use":
            asyncio.run(use_everything())
        case "begin anew":
            asyncio.run(begin_anew())
    os._exit(5)


async def main() -> None:
    global LED, ADDRESS
    network = kactl.TcpNetwork(listen="127.0.0.1:0")
    led = anyio.Event()
    ended: list[int] = []

    async def fork(leader: kactl.Leader, then: Callable[[], object] = lambda: None) -> None:
        pid = os.fork()
        if pid == 0:
            await child(sys.argv[2])
        _, status = await anyio.to_thread.run_sync(os.waitpid, pid, 0)
        ended.append(os.waitstatus_to_exitcode(status))
        led.set()
        then()
        await anyio.sleep_forever()

    async with kactl.Controller(100, store=store_of(sys.argv[1]), network=network) as controller:
        await controller.wait_active()
        ADDRESS = str(network.address)
        outside = kactl.TcpNetwork(controllers=[ADDRESS])
        async with (
            kactl.Participant(1, network=outside, handler=Forks, session_timeout_ms=SESSION_MS) as participant,
            kactl.Spectator(network=outside) as spectator,
        ):
            Cluster.controller, Cluster.participant, Cluster.spectator = controller, participant, spectator
            await participant.wait_linked()
            await spectator.wait_ready()
            epoch, broker_epoch = controller.snapshot().epoch, participant.epoch
            LED = lead_on if sys.argv[3:] == ["outside"] else fork
            await controller.create_topic("t", assignment={0: [1]})
            if sys.argv[3:] == ["outside"]:
                assert Cluster.leader is not None
                async with anyio.create_task_group() as tasks:
                    await fork(Cluster.leader, tasks.cancel_scope.cancel)
            with anyio.fail_after(PATIENCE_S):
                await led.wait()
            say("child ended with", ended[0])
            assert Cluster.leader is not None
            token = Cluster.leader.token
            if sys.argv[3:] != ["briefly"]:
                await anyio.sleep(2 * SESSION_MS / 1000)
            LED = lead_on
            Cluster.leader.check()
            await controller.create_topic("u", assignment={0: [1]})
            same = (controller.snapshot().epoch, participant.epoch) == (epoch, broker_epoch)
            leading = participant.leadership("t-0")
            if same and leading is not None and leading.token == token:
                say("undisturbed")


async def lead_on(leader: kactl.Leader) -> None:
    await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main)
