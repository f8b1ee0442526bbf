"""Handlers that raise, return, or swallow their cancellation, in processes that share shards: none affects others."""

from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.support.processes import Process

from .test_worker_processes import Workers

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
