"""Check that runs are equal in other processes: `python -m tests.sim.engine.determinism FIRST:LAST [PYTHON ...]`.

Each seed runs in two processes per interpreter, with different hash seeds and different layouts of the heap: the order
of a set of objects without a hash of their own depends on their addresses. The digests of the histories must be equal.
For a seed that differs, the first differing event is printed, with what precedes it.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

# Hash seeds of the processes; of each interpreter, the first two are used.
HASH_SEEDS: Final = (0, 1, 77)
# Blocks that are allocated before a run, and their sizes in bytes.
_BLOCKS: Final = (1_000, 60_000)
_BLOCK_SIZE: Final = (1, 5_000)
_CONTEXT: Final = 5
_CHILD: Final = "--child"


class Process(NamedTuple):
    """One way to run the seeds.

    Attributes:
        blocks: number of blocks that the heap is padded with.
    """

    python: str
    hash_seed: int
    blocks: int

    def __str__(self) -> str:
        return f"{self.python} PYTHONHASHSEED={self.hash_seed} {self.blocks} blocks"


class Different(NamedTuple):
    """A seed with two different runs.

    Attributes:
        lines: the first difference, in words.
    """

    seed: int
    first: Process
    second: Process
    lines: list[str]

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed} differs between {self.first} and {self.second}", *self.lines])


def processes(pythons: Sequence[str], *, rng: random.Random) -> list[Process]:
    """Returns two processes for each interpreter."""
    return [
        Process(python, hash_seed, rng.randint(*_BLOCKS))
        for python in pythons
        for hash_seed in rng.sample(HASH_SEEDS, 2)
    ]


def differences(seeds: Sequence[int], ways: Sequence[Process]) -> Iterator[Different]:
    """Run seeds in several processes at the same time. Yields those that differ from the first process."""
    digests = _run(ways, seeds, "digests")
    for seed in seeds:
        for way, found in zip(ways[1:], digests[1:], strict=True):
            if found[seed] != digests[0][seed]:
                yield Different(seed, ways[0], way, _first_difference(seed, ways[0], way))
                break


def _first_difference(seed: int, first: Process, second: Process) -> list[str]:
    """Run a seed again in both processes, and compare the events."""
    before, after = (found[seed] for found in _run((first, second), [seed], "events"))
    length = min(len(before), len(after))
    at = next((index for index in range(length) if before[index] != after[index]), length)
    if at == len(before) == len(after):
        return ["  a second time both runs are equal: the difference does not come with every process"]
    ended = "the run has ended"
    return [
        *(f"  both    {event}" for event in before[max(0, at - _CONTEXT) : at]),
        f"  first   {before[at] if at < len(before) else ended}",
        f"  second  {after[at] if at < len(after) else ended}",
    ]


def _run(ways: Iterable[Process], seeds: Sequence[int], what: str) -> list[dict[int, Any]]:
    """Run seeds in all processes at the same time. Returns the digests, or the events, of each by seed.

    Raises:
        RuntimeError: a process ended by an error, which it has printed.
    """
    running = [_start(way, seeds, what) for way in ways]
    outputs = [process.communicate()[0] for process in running]
    for process in running:
        if process.returncode:
            raise RuntimeError(f"a process of the determinism check ended with code {process.returncode}")
    return [dict(json.loads(line) for line in output.splitlines()) for output in outputs]


def _start(way: Process, seeds: Iterable[int], what: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [way.python, "-m", "tests.sim.engine.determinism", _CHILD, str(way.blocks), what, *map(str, seeds)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": str(way.hash_seed)},
    )


# -- child ------------------------------------------------------------------------------------------------------------


def _padding(count: int) -> list[bytes]:
    """Returns blocks between which the heap has as many holes."""
    rng = random.Random(count)
    blocks = [b"x" * rng.randint(*_BLOCK_SIZE) for _ in range(count)]
    del blocks[::2]
    return blocks


def _child(blocks: int, what: str, seeds: Iterable[int]) -> None:
    padding = _padding(blocks)
    from .generator import script_of_seed
    from .judging import judge

    for seed in seeds:
        judged = judge(script_of_seed(seed))
        # The outcome, too: two runs may differ in it alone.
        digest = f"{judged.digest} {judged.signature} {judged.steps}"
        events = [*(msgspec.json.encode(event).decode() for event in judged.history.events), judged.signature]
        print(json.dumps([seed, digest if what == "digests" else events]), flush=True)
    del padding


def main(arguments: Sequence[str]) -> int:
    """Run as the parent or as a child. Returns 4 if a seed differs, as `python -m tests.sim` does."""
    if arguments[:1] == [_CHILD]:
        blocks, what, *wanted = arguments[1:]
        _child(int(blocks), what, map(int, wanted))
        return 0
    first, _, last = arguments[0].partition(":")
    seeds = range(int(first), int(last or first) + 1)
    ways = processes(arguments[1:] or [sys.executable], rng=random.Random())
    found = 0
    for different in differences(seeds, ways):
        found += 1
        print(different)
    print(f"{len(seeds)} seeds in {len(ways)} processes, {found} differ")
    return 4 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
