"""Bad handlers and neighbours of processes that share shards: each is named once, and no other shard is affected."""

import signal
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.support.processes import Process

from .test_worker_processes import PATIENCE_S, Workers

pytestmark = pytest.mark.slow

PROGRAM: Final = """
import logging, sys, anyio, kactl
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
async def work(shard):
    print(f"{shard.name} begins", flush=True)
    match shard.number:
        case 0:
            raise OSError("poisoned")
        case 1:
            return
        case 2:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(3600)
    await anyio.sleep_forever()
kactl.run(kactl.shards("jobs", int(sys.argv[1]), work))
"""
COUNT: Final = 7


def begun(process: Process) -> Counter[str]:
    return Counter(line.removesuffix(" begins") for line in process.text.splitlines() if line.endswith(" begins"))


def test_bad_handlers_are_named_once_and_affect_no_other_shard(tmp_path: Path) -> None:
    workers = Workers(tmp_path, PROGRAM)
    others = {f"jobs-{number}" for number in range(1, COUNT)}

    try:
        first = workers.start(str(COUNT))
        workers.wait(lambda: others <= begun(first).keys())
        second = workers.start(str(COUNT - 1))
        # The one that fails counts as a shard of the second process, which needs it.
        workers.wait(lambda: len(others & begun(second).keys()) == 2)
        before = [begun(process) for process in workers.processes]

        # It goes to both of them once more.
        workers.wait(
            lambda: all(
                begun(process)["jobs-0"] > 3 + old["jobs-0"]
                for process, old in zip(workers.processes, before, strict=True)
            )
        )

        for process, old in zip(workers.processes, before, strict=True):
            assert {**begun(process), "jobs-0": 0} == {**old, "jobs-0": 0}
            assert process.text.count("OSError: poisoned") == 1
            assert process.text.count("the handler of jobs-1 has returned") == old["jobs-1"]
            assert process.text.count("topic jobs has 7 partitions, and 6 were requested") == (process is first)
    finally:
        for process in workers.processes:
            process.kill()


# Files of the test begin and end what is wrong, at the worker that owns the shard then.
STOPPABLE: Final = """
import logging, sys, threading, time, anyio, kactl
from pathlib import Path
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
def ordered(name):
    if not Path(name).exists():
        return False
    Path(name).unlink()
    print(name, flush=True)
    return True
async def work(shard):
    print(f"{shard.name} begins", flush=True)
    while True:
        await anyio.sleep(0.02)
        shard.check()
        if shard.number == 0 and ordered("block"):
            while not Path("release").exists():
                time.sleep(0.02)
        if shard.number == 1 and ordered("hang"):
            await anyio.to_thread.run_sync(threading.Event().wait)
async def neighbour():
    store, network = kactl.SqliteStore(".kactl/workers.db"), kactl.TcpNetwork(listen="127.0.0.1:0")
    async with (
        kactl.Controller(2, store=store, network=network) as controller,
        kactl.Participant(store=controller.store, network=controller.network, groups=["others"]) as participant,
    ):
        await participant.ensure_topic("orphans", partitions=2, kind="ownership")
        await participant.ensure_topic("jobs", partitions=6, replication_factor=1)
kactl.run(neighbour if sys.argv[1:] else kactl.shards("jobs", 6, work, session_timeout_ms=3_000))
"""
SIX: Final = frozenset(f"jobs-{number}" for number in range(6))


def test_blocked_loop_and_hanging_handler_lose_shards_to_the_other_worker(tmp_path: Path) -> None:
    workers = Workers(tmp_path, STOPPABLE)

    def happens(name: str) -> tuple[Process, Process]:
        """Returns the worker that it happens to, and the other one."""
        (tmp_path / name).touch()
        workers.wait(lambda: any(name in process.text.splitlines() for process in workers.processes))
        first, second = workers.processes[:2]
        return (first, second) if name in first.text.splitlines() else (second, first)

    try:
        first = workers.start()
        workers.wait(lambda: begun(first).keys() == SIX)
        second = workers.start()
        workers.wait(lambda: len(begun(second)) == 3)

        blocked, other = happens("block")
        before = begun(other)
        workers.wait(lambda: (begun(other) - before).total() == 3)
        assert happens("hang") == (other, blocked)
        neighbour = workers.start("neighbour")
        assert neighbour.wait(PATIENCE_S) == 1
        before = begun(blocked)
        (tmp_path / "release").touch()
        workers.wait(lambda: "registers again" in blocked.text)
        other.terminate()
        workers.wait(lambda: (begun(blocked) - before).keys() == SIX)
        workers.wait(lambda: "the program has not ended after 5 s: lead of jobs-1, at worker.py:" in other.text)
        other.terminate()

        assert other.wait(PATIENCE_S) == 128 + signal.SIGTERM
        assert blocked.text.count("the event loop has been blocked") == 1
        assert other.text.count("the handler of jobs-1 is stuck") == 1
        refusal = neighbour.text.splitlines()[-1]
        assert "TopicExists: Topic 'jobs' already exists" in refusal
        assert "or under another name" in refusal
        logs = first.text + second.text
        assert logs.count("topic orphans: no participant offers it (groups=); its shards are owned as soon as one") == 1
    finally:
        for process in workers.processes:
            process.kill()
