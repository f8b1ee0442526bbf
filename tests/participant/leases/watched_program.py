"""A program with a leader that its argument directs, under a watchdog: python watched_program.py KIND WHAT."""

import ctypes
import sys
import time

import anyio

import kactl

SESSION_MS = 4_000


class Handler(kactl.PartitionHandler):
    async def lead(self, leader: kactl.Leader) -> None:
        print("leads", flush=True)
        match sys.argv[2]:
            case "block":
                time.sleep(120)  # noqa: ASYNC251
            case "hold the GIL":
                ctypes.PyDLL(None).sleep(120)
            case "ignore":
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(120)
            case "wait":
                await anyio.sleep_forever()


async def main() -> None:
    kind = sys.argv[1]
    async with (
        kactl.Controller(node_id=100) as controller,
        kactl.Participant(
            1,
            store=controller.store,
            hub=controller.hub,
            handler=Handler,
            session_timeout_ms=SESSION_MS,
            lease=kactl.LeaseConfig(watchdog=kind),
        ) as participant,
    ):
        await controller.create_topic("t", assignment={0: (1,)}, timeout_ms=0)
        if sys.argv[2] == "ignore":
            while participant.leadership("t-0") is None:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            participant._session.renew = silent  # type: ignore[union-attr, method-assign]
            await anyio.sleep(120)
        await anyio.sleep(2 * SESSION_MS / 1000)
    print("ended", flush=True)


async def silent(sent_ns: int) -> None:
    await anyio.sleep_forever()


anyio.run(main)
