"""Process of some participants, for `bench.outage`.

    python -m bench.participants_program RACK ID[,ID] ADDRESS SESSION_MS

It prints `registered` once all participants are, and runs until it is killed.
"""

import contextlib
import sys

import anyio

import kactl
from bench.run import event_loop, run


class Leads(kactl.PartitionHandler):
    """Leads, without any work."""

    async def lead(self, leader: kactl.Leader) -> None:
        leader.check()
        await anyio.sleep_forever()


async def participate(rack: str, ids: list[int], address: str, session_ms: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        members = [
            kactl.Participant(
                broker,
                network=kactl.TcpNetwork(controllers=[address]),
                handler=Leads,
                rack=rack,
                session_timeout_ms=session_ms,
            )
            for broker in ids
        ]
        for member in members:
            await stack.enter_async_context(member)
        print("registered", flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    named, numbers, controller, timeout_ms = sys.argv[1:5]
    run(participate(named, [int(one) for one in numbers.split(",")], controller, int(timeout_ms)), event_loop("auto"))
