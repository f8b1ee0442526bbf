"""Participants in one process, which print what happens to them: python -m tests.environment.worker OPTIONS

Each line is JSON. It has `event` and `at_ms`, in the boot time of the host:

starts      `participant` is about to look for a controller
registered  of `participant`, with its `epoch`
leads       `participant` has begun to lead `partition` under `token`
ended       it does no more: its lease was valid for the last time at `valid_ms`
confirmed   the controller has confirmed the `topic`
refused     a topic was not confirmed, with the `error`
failed      a participant could not start, or has ended, with the `error`
"""

import argparse
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

import kactl

CHECK_S = 0.02
ENSURE_S = 0.2
# Longer than anything is stopped or full here: a member that left the ISR would not be elected.
LAG_MS = 60_000
_OFFSETS = Path("/proc/self/timens_offsets")


def boot_offset_ms() -> float:
    """Returns what the time namespace of this process adds to the boot time of the host."""
    for line in _OFFSETS.read_text().splitlines():
        name, seconds, nanoseconds = line.split()
        if name == "boottime":
            return int(seconds) * 1e3 + int(nanoseconds) / 1e6
    return 0.0


OFFSET_MS = boot_offset_ms()


def now_ms() -> float:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e6 - OFFSET_MS


def say(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, "at_ms": now_ms(), **fields}), flush=True)


class Handler(kactl.PartitionHandler):
    """Says from when to when it leads; checks the lease all the time meanwhile."""

    def __init__(self, broker: int, partition: kactl.TopicPartition) -> None:
        super().__init__(partition)
        self.broker = broker

    async def lead(self, leader: kactl.Leader) -> None:
        leads = {"participant": self.broker, "partition": str(self.partition), "token": leader.token.as_int()}
        valid_ms = now_ms()
        say("leads", **leads)
        try:
            while True:
                read_ms = now_ms()
                leader.check()
                valid_ms = read_ms
                await anyio.sleep(CHECK_S)
        except kactl.LeadershipLost:
            await anyio.sleep_forever()  # until the call is cancelled
        finally:
            say("ended", valid_ms=valid_ms, **leads)


async def participate(broker: int, options: argparse.Namespace) -> None:
    say("starts", participant=broker)
    try:
        async with participant(broker, options) as started:
            say("registered", participant=broker, epoch=started.epoch)
            if options.ensure:
                await ensure_topics(started, f"{options.ensure}-{broker}")
            await started.wait_closed()
    except kactl.KactlError as error:
        say("failed", participant=broker, error=str(error))


@contextlib.asynccontextmanager
async def participant(broker: int, options: argparse.Namespace) -> AsyncIterator[kactl.Participant]:
    network = kactl.TcpNetwork(
        controllers=options.controllers.split(","), secret=options.secret, allow_plaintext=options.secret is not None
    )
    async with kactl.Participant(
        broker,
        network=network,
        handler=lambda partition: Handler(broker, partition),
        session_timeout_ms=options.session_ms,
        start_timeout_ms=None,  # the tests have their own patience
        lag_ms=LAG_MS,
        lease=kactl.LeaseConfig(watchdog=options.watchdog),
    ) as started:
        yield started


async def ensure_topics(started: kactl.Participant, prefix: str) -> None:
    for number in range(1_000_000):
        try:
            await started.ensure_topic(f"{prefix}-{number}", partitions=1, replication_factor=1)
            say("confirmed", topic=f"{prefix}-{number}")
        except kactl.KactlError as error:
            say("refused", topic=f"{prefix}-{number}", error=str(error))
        await anyio.sleep(ENSURE_S)


async def main(options: argparse.Namespace) -> None:
    first, _, last = options.participants.partition("-")
    async with anyio.create_task_group() as tasks:
        for broker in range(int(first), int(last or first) + 1):
            tasks.start_soon(participate, broker, options)
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                tasks.cancel_scope.cancel()
                return


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("participants", metavar="FIRST[-LAST]")
    parser.add_argument("controllers", metavar="ADDRESS[,ADDRESS]")
    parser.add_argument("--secret")
    parser.add_argument("--session-ms", type=int)
    parser.add_argument("--watchdog", default="off")
    parser.add_argument("--ensure", metavar="PREFIX", help="confirm topics of this prefix, one after the other")
    anyio.run(main, parser.parse_args())
