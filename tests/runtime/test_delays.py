"""What delays the end of a program after a signal is named, with the handler and its line."""

import signal
import subprocess
import sys

import pytest

PATIENCE_S = 120
PROGRAM = """
import asyncio, sys, time
import anyio, anyio.to_thread
import kactl
async def swallow():
    while True:
        try:
            await asyncio.sleep(3600)  # swallowed
        except BaseException:
            pass
class Shard(kactl.PartitionHandler):
    async def lead(self, leader):
        print("leads", flush=True)
        match sys.argv[1]:
            case "swallows":
                await swallow()
            case "a task swallows":
                leader.tasks.start_soon(swallow)
            case "a thread":
                await anyio.to_thread.run_sync(time.sleep, 3600)  # in a thread
            case "blocks":
                try:
                    await asyncio.sleep(3600)
                finally:
                    time.sleep(3600)  # blocks
        await anyio.sleep_forever()
    async def stop(self, *, deleted):
        if sys.argv[1] == "stop":
            await anyio.sleep(3600)  # in stop
async def main():
    async with (
        kactl.Controller(0) as controller,
        kactl.Participant(1, store=controller.store, hub=controller.hub, handler=Shard) as node,
    ):
        await controller.ensure_topic("shards", partitions=1, replication_factor=1)
        try:
            await node.wait_closed()
        finally:
            if sys.argv[1] == "main":
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(3600)  # in main
kactl.run(main)
"""
LINES = PROGRAM.splitlines()


def _line(comment: str) -> int:
    return next(number for number, line in enumerate(LINES, 1) if line.endswith(f"# {comment}"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("swallows", f"lead of shards-0, at <string>:{_line('swallowed')} in swallow"),
        ("a task swallows", f"lead of shards-0, at <string>:{_line('swallowed')} in swallow"),
        ("a thread", f"lead of shards-0, at <string>:{_line('in a thread')} in Shard.lead"),
        ("blocks", f"the event loop is blocked, at <string>:{_line('blocks')} in Shard.lead"),
        ("stop", f"stop of shards-0, at <string>:{_line('in stop')} in Shard.stop"),
        ("main", f"the program, at <string>:{_line('in main')} in main"),
    ],
)
def test_what_delays_the_end_is_named_until_a_second_signal(what: str, named: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, what], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as program:
        assert program.stdout is not None
        if program.stdout.readline() != "leads\n":
            pytest.fail(program.communicate()[0])

        program.send_signal(signal.SIGINT)
        first = program.stdout.readline()
        found = next(line for line in program.stdout if "the program has not ended" in line)
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=PATIENCE_S)

    assert first == "kactl: SIGINT: the program ends in order; a second signal ends it at once\n"
    assert named in found
    assert program.returncode == 128 + signal.SIGINT


def test_handler_that_ends_is_not_named() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "good"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        program.send_signal(signal.SIGTERM)
        output, _ = program.communicate(timeout=PATIENCE_S)

    assert program.returncode == 0
    assert "Traceback" not in output
