"""A process of a large cluster over tcp: python crowd_program.py ROLE PORT FOLDER [FIRST COUNT]

ROLE is `controller`, which listens on the port, or `participants`: COUNT of them, with ids from FIRST on. With a file
`ca.pem` in the folder, all connections use TLS; the certificates are there, too. A controller prints a line `granted
<number>` when a further hundred of participants has a granted heartbeat of its controllership; participants print
`linked` when all of them are linked for the first time, and a line for each event of a lease.
"""

import sys
from pathlib import Path

import anyio

import kactl
from kactl.decide.messages.sessions import Granted, Heartbeat, SessionAnswer, SessionRequest

# The lease of a participant has to outlast the restart of a controller on a machine that is busy with other work.
SESSION_MS = 120_000
CONTROLLER_MS = 2_000


class Counting(kactl.Controller):
    """A controller that prints how many participants it has granted heartbeats to."""

    def __init__(self, folder: Path, network: kactl.TcpNetwork) -> None:
        store = kactl.SqliteStore(folder / "kactl.db", session_timeout_ms=CONTROLLER_MS)
        super().__init__(1_000, store=store, network=network)
        self._granted: set[int] = set()

    async def session(self, request: SessionRequest, *, received_ns: int) -> SessionAnswer:
        answer = await super().session(request, received_ns=received_ns)
        if isinstance(request, Heartbeat) and isinstance(answer, Granted) and request.broker not in self._granted:
            self._granted.add(request.broker)
            if len(self._granted) % 100 == 0:
                print("granted", len(self._granted), flush=True)
        return answer


async def control(folder: Path, network: kactl.TcpNetwork) -> None:
    async with Counting(folder, network):
        await anyio.sleep_forever()


async def participate(network: kactl.TcpNetwork, brokers: range) -> None:
    linked: list[int] = []

    async def run(broker: int) -> None:
        async with kactl.Participant(
            broker,
            network=network,
            handler=kactl.PartitionHandler,
            session_timeout_ms=SESSION_MS,
            on_lease_event=lambda event: print(type(event).__name__, broker, event, flush=True),
        ) as participant:
            linked.append(await participant.wait_linked(timeout_ms=SESSION_MS))
            if len(linked) == len(brokers):
                print("linked", flush=True)
            await participant.wait_closed()

    async with anyio.create_task_group() as tasks:
        for broker in brokers:
            tasks.start_soon(run, broker)


def main(role: str, port: str, folder: str, *brokers: str) -> None:
    place, address = Path(folder), f"127.0.0.1:{port}"
    tls = None
    if (place / "ca.pem").exists():
        name = f"{role}{''.join(brokers[:1])}"
        tls = kactl.Tls(ca=place / "ca.pem", cert=place / f"{name}.pem", key=place / f"{name}.key")
    if role == "controller":
        anyio.run(control, place, kactl.TcpNetwork(listen=address, tls=tls))
    else:
        first, count = map(int, brokers)
        anyio.run(participate, kactl.TcpNetwork(controllers=[address], tls=tls), range(first, first + count))


if __name__ == "__main__":
    main(*sys.argv[1:])
