"""Registration of a participant, as Kafka's own controller reads it: it has one object more than a broker's."""

from pathlib import Path

import anyio
from confluent_kafka.admin import AdminClient

from kactl.model import Broker, Endpoint
from kactl.stores.zookeeper import ZooKeeperStore
from tests.support.processes import free_port
from tests.support.zookeeper_server import ZooKeeperServer

from .brokers import KafkaBroker

SESSION_MS = 6_000
PATIENCE_S = 60.0
REQUEST_S = 60.0


def test_kafka_controller_accepts_a_participant_as_a_broker(
    jars: str, zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    endpoints = tuple(Endpoint(name, "127.0.0.1", free_port()) for name in ("INTERNAL", "CLIENT"))
    participant = Broker(7, 0, endpoints, incarnation=bytes(range(16)), timeout_ms=SESSION_MS, peer=endpoints[0])
    with KafkaBroker(1, folder=tmp_path, zookeeper=zookeeper.connect(chroot), ibp="3.9") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})

        async def register() -> set[int]:
            """Returns the brokers that Kafka's controller announces while the participant is registered."""
            async with ZooKeeperStore(zookeeper.connect(chroot), session_timeout_ms=SESSION_MS) as store:
                session = await store.new_session(SESSION_MS)
                await session.register(participant)
                stored = await store.broker(participant.id)
                assert stored is not None
                assert stored.incarnation == participant.incarnation
                with anyio.fail_after(PATIENCE_S):
                    while True:
                        found = await anyio.to_thread.run_sync(
                            lambda: set(admin.list_topics(timeout=REQUEST_S).brokers)
                        )
                        if len(found) > 1:
                            await session.close()
                            return found
                        await session.renew(0)

        announced = anyio.run(register)

        assert announced == {1, 7}
        assert "Newly added brokers: 7" in broker.log
        assert "ERROR" not in broker.log
