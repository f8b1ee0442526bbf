"""Process that is killed in the middle of a deletion: a controller and three brokers over one file.

`python -m tests.actors.deletion_child FILE` creates a topic, blocks broker 3 and deletes the topic. It prints `half`
once brokers 1 and 2 have deleted their replicas, and then waits to be killed.
"""

import sys

import anyio

import kactl
from kactl.model import ReplicaState
from kactl.stores.sqlite import SqliteStore

# Longer than a busy machine delays a process: a broker that loses its session has no replica left to delete.
SESSION_MS = 3_000
TOPIC = "orders"


async def main(path: str) -> None:
    store = SqliteStore(path, session_timeout_ms=SESSION_MS)
    async with (
        kactl.Controller(node_id=100, store=store) as controller,
        kactl.Participants(3, store=store, hub=controller.hub, session_timeout_ms=SESSION_MS) as brokers,
    ):
        await controller.create_topic(TOPIC, partitions=4, replication_factor=3, config={"retention.ms": "1"})
        brokers.pause(3)
        await controller.delete_topic(TOPIC, timeout_ms=0)
        async for _ in controller.events():
            views = controller.partitions_of(TOPIC)
            deleted = [[view.replica_states[broker] for view in views] for broker in (1, 2)]
            if all(state is ReplicaState.DELETION_SUCCESSFUL for states in deleted for state in states):
                break
        print("half", flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
