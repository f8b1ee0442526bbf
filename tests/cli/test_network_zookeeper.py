"""`[network]` of a server whose cluster is in ZooKeeper: participants of other programs join, lead, and wait."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

import kactl
from kactl.cli.serving import Server, over_zookeeper
from kactl.config.file import load
from kactl.model.errors import LeadershipLost
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.testing.contracts.link_support import moment, until
from tests.support.processes import free_port
from tests.support.zookeeper_fixtures import chroot, jars, zookeeper
from tests.support.zookeeper_server import ZooKeeperServer

__all__ = ["chroot", "jars", "zookeeper"]

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

SECRET = "a secret of 16 bytes"
# Renewals may be late on a busy machine. The server of the tests grants at most 10 s.
SESSION_MS = 6_000
PATIENCE_S = 120
TURNS = 20


class Actions:
    """Actions of the leaders of a partition, each after a check that has succeeded.

    Attributes:
        tokens: under which they have acted; an entry for each change.
        turns: how often they have acted under the last token.
    """

    def __init__(self) -> None:
        self.tokens: list[kactl.FencingToken] = []
        self.turns = 0

    def handler(self, partition: kactl.TopicPartition) -> kactl.PartitionHandler:
        return Acting(partition, self)


class Acting(kactl.PartitionHandler):
    def __init__(self, partition: kactl.TopicPartition, actions: Actions) -> None:
        super().__init__(partition)
        self._actions = actions

    async def lead(self, leader: kactl.Leader) -> None:
        leader.tasks.start_soon(self._act, leader)

    async def _act(self, leader: kactl.Leader) -> None:
        while True:
            try:
                leader.check()
            except LeadershipLost:
                return
            if leader.token not in self._actions.tokens[-1:]:
                self._actions.tokens.append(leader.token)
                self._actions.turns = 0
            self._actions.turns += 1
            await moment()


@asynccontextmanager
async def server(connect: str, folder: Path, address: str) -> AsyncIterator[Server]:
    """Run `kactl controller`, which serves Kafka's brokers beside participants."""
    file = folder / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)
    settings: dict[str, object] = {
        "node-id": 0,
        "api.listen": "127.0.0.1:0",
        "network.listen": address,
        "network.secret-file": str(file),
        "store.kind": "zookeeper",
        "store.connect": connect,
        "log.folder": str(folder / "log"),
    }
    async with over_zookeeper(load(None, {}, settings)) as running:
        yield running


@pytest.mark.parametrize("sessions", ["store", "controller"])
async def test_planned_move_waits_for_the_earlier_leader(
    zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path, sessions: str
) -> None:
    """The leader is moved while it hangs: it acts until its lease has ended, and only then does the next one."""
    actions, connect, address = Actions(), zookeeper.connect(chroot), f"127.0.0.1:{free_port()}"
    with anyio.fail_after(PATIENCE_S):
        async with server(connect, tmp_path, address) as running, ZooKeeperStore(connect) as store:
            controller = running.controller
            await controller.wait_active()

            def participant(number: int) -> kactl.Participant:
                network = kactl.TcpNetwork(controllers=[address], secret=SECRET)
                return kactl.Participant(
                    number,
                    store=store if sessions == "store" else None,
                    network=network,
                    handler=actions.handler,
                    session_timeout_ms=SESSION_MS,
                )

            async with participant(7) as first, participant(8) as second:
                await first.wait_linked()
                await second.wait_linked()
                await controller.create_topic("orders", assignment={0: [7, 8]})
                await until(lambda: first.leadership("orders-0") is not None)
                before = first.leadership("orders-0")
                assert before is not None
                registered = await store.broker(7)
                assert registered is not None
                assert registered.session == sessions

                first.pause()
                await controller.drain(7)
                # Both act in this event loop. If the earlier leader still could, no token would last for many turns.
                while len(actions.tokens) < 2 or (len(actions.tokens) == 2 and actions.turns < TURNS):
                    await moment()
                has_ended = not before.is_valid
                first.resume()
                await until(lambda: first.leader("orders-0") == 8)

                acted = tuple(actions.tokens)
                assert has_ended
                assert len(acted) == 2
                assert acted[0] < acted[1]
