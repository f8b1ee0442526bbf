"""Loop of the fuzzer: random inputs for all targets, in batches, with the oracles that need more than one input.

Every input is decoded once, and raises only what its decoder documents. Further oracles:

* The same input has the same outcome: one in REPLAYED inputs is decoded twice more, after others.
* An input takes at most TIME_S, and TIME_PER_KIB_S for each KiB, of processor time. The time of a batch bounds that of
  each of its inputs; a batch that takes longer is measured input by input.
* An input allocates at most `Target.memory_max`. That is measured for one in MEASURED batches, and for each batch that
  raises the largest memory that the process had.
"""

import gc
import random
import resource
import sys
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from tests.support.processor_time import unit_s

from .mutation import changed
from .target import Target, Violation, outcome

BATCH: Final = 256
# Inputs of one target that one process runs in a row.
CHUNK: Final = 100_000
REPLAYED: Final = 16
MEASURED: Final = 64
TIME_S: Final = 0.01
TIME_PER_KIB_S: Final = 0.001
# Pauses of the garbage collector and first uses of modules end with the first attempt.
_ATTEMPTS: Final = 4
_KIB: Final = 1024
# What a batch may add to the largest memory of the process without being measured.
_GROWTH_KIB: Final = 1024


class Figures(msgspec.Struct):
    """Costs of the inputs of one target.

    Attributes:
        seconds: of processor time, with the oracles.
        longest_s: of the inputs that were measured alone.
        memory_max: the bytes that one input allocated, of those that were measured.
    """

    inputs: int = 0
    accepted: int = 0
    seconds: float = 0.0
    longest_s: float = 0.0
    memory_max: int = 0

    def add(self, other: "Figures") -> None:
        self.inputs += other.inputs
        self.accepted += other.accepted
        self.seconds += other.seconds
        self.longest_s = max(self.longest_s, other.longest_s)
        self.memory_max = max(self.memory_max, other.memory_max)


def shares(targets: Sequence[Target], inputs: int) -> dict[str, int]:
    """Returns the number of inputs of each target, together about `inputs`: the more, the cheaper it is."""
    whole = sum(1 / target.rarity for target in targets)
    return {target.name: max(1, round(inputs / whole / target.rarity)) for target in targets}


def chunks(targets: Sequence[Target], inputs: int) -> Iterator[tuple[str, int, int]]:
    """Yields the target, the number and the inputs of each part of a run, whose parts are independent."""
    for name, share in shares(targets, inputs).items():
        for number, begin in enumerate(range(0, share, CHUNK)):
            yield name, number, min(CHUNK, share - begin)


def fuzz(target: Target, inputs: int, seed: str) -> Figures:
    """Returns the costs of so many random inputs of one target.

    Raises:
        Violation: an oracle is violated. Any other exception is one that the decoder does not document. Notes of both
            have the input.
    """
    chance, figures = random.Random(seed), Figures()
    begun_s = time.process_time()
    size, slowest_s, peak_kib = max(1, BATCH // target.rarity), 0.0, _peak_kib()
    for number, begin in enumerate(range(0, inputs, size)):
        batch = _inputs(target, min(size, inputs - begin), chance)
        batch_begun_s = time.process_time()
        figures.accepted += _decode(target, batch)
        taken_s = time.process_time() - batch_begun_s
        _replay(target, batch[:: min(REPLAYED, size)])
        is_sample = number % MEASURED == 0
        if is_sample or taken_s > max(slowest_s, TIME_S):
            figures.longest_s = max(figures.longest_s, _time(target, batch))
            slowest_s = max(slowest_s, taken_s)
        if is_sample or _peak_kib() > peak_kib + _GROWTH_KIB:
            figures.memory_max = max(figures.memory_max, _measure_memory(target, batch))
            peak_kib = _peak_kib()
    figures.inputs, figures.seconds = inputs, time.process_time() - begun_s
    return figures


def _inputs(target: Target, count: int, chance: random.Random) -> list[bytes]:
    seeds, draw = target.seeds, chance.getrandbits
    return [
        changed(seeds[(bits & 0xFFFF) % len(seeds)], seeds[(bits >> 16) % len(seeds)], chance)
        for bits in [draw(32) for _ in range(count)]
    ]


def _decode(target: Target, batch: Sequence[bytes]) -> int:
    """Returns how many inputs are accepted."""
    decode, errors, accepted = target.decode, target.errors, 0
    for content in batch:
        try:
            decode(content)
            accepted += 1
        except errors:
            pass
        except BaseException as error:
            _note(error, target, content)
            raise
    return accepted


def _replay(target: Target, batch: Sequence[bytes]) -> None:
    first, again = ([outcome(target, content) for content in batch] for _ in range(2))
    for content, one, other in zip(batch, first, again, strict=True):
        if one != other:
            raise _note(Violation(f"it had two outcomes: {one} and {other}"), target, content)


def _time(target: Target, batch: Sequence[bytes]) -> float:
    """Returns the longest time that an input takes, each in its fastest attempt."""
    longest_s = 0.0
    for content in batch:
        limit_s = TIME_S + TIME_PER_KIB_S * len(content) / _KIB
        for attempt in range(_ATTEMPTS):
            begun_s = time.process_time()
            _decode(target, [content])
            taken_s = time.process_time() - begun_s
            # Seconds are those of a processor whose unit takes a millisecond.
            if taken_s <= limit_s or taken_s <= limit_s * unit_s() * 1000:
                break
            if attempt == _ATTEMPTS - 1:
                raise _note(Violation(f"it took {taken_s:.3f} s"), target, content)
        longest_s = max(longest_s, taken_s)
    return longest_s


def _measure_memory(target: Target, batch: Sequence[bytes]) -> int:
    """Returns the largest number of bytes that decoding an input allocates at the same time."""
    largest = 0
    tracemalloc.start()
    try:
        for content in batch:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            _decode(target, [content])
            allocated = tracemalloc.get_traced_memory()[1] - before
            if allocated > target.memory_max(content):
                _decode(target, [content])  # not what a first use keeps
                before, _ = tracemalloc.get_traced_memory()
                tracemalloc.reset_peak()
                _decode(target, [content])
                allocated = tracemalloc.get_traced_memory()[1] - before
            if allocated > target.memory_max(content):
                raise _note(Violation(f"it allocated {allocated} bytes"), target, content)
            largest = max(largest, allocated)
    finally:
        tracemalloc.stop()
    return largest


def _peak_kib() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // _KIB if sys.platform == "darwin" else peak


def _note(error: BaseException, target: Target, content: bytes) -> BaseException:
    """Returns the error, with the input as a note."""
    error.add_note(f"{target.name} {content.hex()}")
    return error


def settle() -> None:
    """Exclude modules and seeds from garbage collections."""
    gc.collect()
    gc.freeze()
