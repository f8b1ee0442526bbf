"""Controller of the examples, which keeps its state in a file.

    python examples/controller.py 127.0.0.1:7373 cluster.db

Start a second one with the same file and another address and id as a standby. It takes over 2 s after the first one is
killed, before the leases of participants end.
"""

import sys

import anyio

import kactl


async def main(listen: str, file: str, node_id: int) -> None:
    network = kactl.TcpNetwork(listen=listen)
    store = kactl.SqliteStore(file, session_timeout_ms=2_000)
    async with kactl.Controller(node_id, store=store, network=network):
        print(f"controller {node_id} listens at {network.address}", flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    kactl.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 100)
