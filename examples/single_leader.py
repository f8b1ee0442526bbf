"""One process of several does the work; another one takes over if it dies.

    python examples/controller.py 127.0.0.1:7373 cluster.db
    NODE=1 python examples/single_leader.py 127.0.0.1:7373      # and NODE=2, NODE=3

The first start waits up to 30 s until all three processes run.
"""

import os
import sys

import anyio

import kactl


class Nightly(kactl.PartitionHandler):
    async def lead(self, leader: kactl.Leader) -> None:
        print(f"leads with token {leader.token}", flush=True)
        while True:
            leader.check()  # raises as soon as another process may lead
            await anyio.sleep(1)  # the work, whose effects carry leader.token


async def main(*controllers: str) -> None:
    network = kactl.TcpNetwork(controllers=controllers)
    async with kactl.Participant(int(os.environ["NODE"]), network=network, handler=Nightly) as node:
        await node.ensure_topic("nightly", assignment={0: [1, 2, 3]})
        await node.wait_closed()


if __name__ == "__main__":
    kactl.run(main, *sys.argv[1:])
