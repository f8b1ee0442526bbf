"""Mutation fuzzing that is guided by coverage: inputs that reach new lines of a decoder are changed further.

Run as `python -m tests.fuzz.guided [INPUTS] [SEED] [--keep FOLDER]`, or by `make fuzz`. It has the targets and oracles
of `decoders`, prints the lines that guided and unguided inputs reach, and writes the inputs that reached new lines, as
short as they can be, to FOLDER.

The lines that count are those of the functions of kactl that a target enters. For all targets together, a line that
several of them enter counts once, and is reached if one of them reaches it. `unreached` has the files that do not
count, and the reasons why other lines are not reached.
"""

import argparse
import hashlib
import logging
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import kactl

from .decoders import targets
from .mutation import changed
from .target import Target, check
from .unreached import is_decoder, reason

# Of the inputs, the share that is made from inputs that have reached new lines. The others are made from the seeds.
_GUIDED: Final = 0.8
_INPUTS: Final = 50_000

# Code of a function, and a line of it.
Line = tuple[CodeType, int]


class Tracer:
    """Collects the lines that run in a `with` block.

    Args:
        folders: of the source files that count.
    """

    def __init__(self, *folders: str) -> None:
        self._folders = folders
        self._counts: dict[CodeType, bool] = {}
        self.lines: set[Line] = set()

    def _of_call(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        code = frame.f_code
        counts = self._counts.get(code)
        if counts is None:
            counts = self._counts[code] = code.co_filename.startswith(self._folders)
        return self._of_line if counts else None

    def _of_line(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
        if event == "line":
            self.lines.add((frame.f_code, frame.f_lineno))
        return self._of_line

    @contextmanager
    def tracing(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._of_call)
        try:
            yield
        finally:
            sys.settrace(before)


class Reached(NamedTuple):
    """The lines that the inputs of one target have reached.

    Attributes:
        lines: those that ran.
        entered: all lines of the functions that were entered.
        corpus: the inputs that reached new lines, in their order.
    """

    lines: set[Line]
    entered: set[Line]
    corpus: list[bytes]


def explore(
    target: Target, inputs: int, chance: random.Random, *, is_guided: bool = True, folders: tuple[str, ...] = ()
) -> Reached:
    """Returns the lines that random inputs of one target reach.

    Args:
        is_guided: whether inputs that reached new lines are changed further.
        folders: of the source files that count; those of kactl by default.

    Raises:
        Violation: an oracle is violated. Any other exception is one that the decoder does not document.
    """
    tracer = Tracer(*(folders or (str(Path(kactl.__file__).parent),)))
    corpus: list[bytes] = []
    for number in range(-len(target.seeds), inputs):
        if number < 0:
            content = target.seeds[number]
        else:
            pool = corpus if is_guided and corpus and chance.random() < _GUIDED else target.seeds
            content = changed(chance.choice(pool), chance.choice(target.seeds), chance)
        known = len(tracer.lines)
        try:
            with tracer.tracing():
                check(target, content)
        except BaseException as error:
            error.add_note(f"{target.name} {content.hex()}")
            raise
        if len(tracer.lines) > known and number >= 0:
            corpus.append(content)
    entered = {
        (code, line)
        for code in {code for code, _ in tracer.lines}
        for _, _, line in code.co_lines()
        if line and line != code.co_firstlineno
    }
    return Reached(tracer.lines & entered, entered, corpus)


def minimized(target: Target, content: bytes, is_kept: Callable[[bytes], bool]) -> bytes:
    """Returns a shorter input for which `is_kept` holds, too: pieces are removed as long as that is possible."""
    size = len(content) // 2
    while size:
        begin = 0
        while begin < len(content):
            shorter = content[:begin] + content[begin + size :]
            if is_kept(shorter):
                content = shorter
            else:
                begin += size
        size //= 2
    return content


def lines_of(target: Target, content: bytes) -> set[Line]:
    """Returns the lines of kactl that an input reaches."""
    tracer = Tracer(str(Path(kactl.__file__).parent))
    with tracer.tracing():
        check(target, content)
    return tracer.lines


def kept(target: Target, corpus: list[bytes], known: set[Line]) -> list[bytes]:
    """Returns inputs that together reach the lines of a corpus that are not known yet, each as short as possible."""
    result = []
    for content in corpus:
        new = lines_of(target, content) - known
        if new:

            def reaches_them(shorter: bytes, new: set[Line] = new) -> bool:
                return new <= lines_of(target, shorter)

            result.append(minimized(target, content, reaches_them))
            known = known | lines_of(target, result[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz decoders, guided by coverage.")
    parser.add_argument("inputs", type=int, nargs="?", default=_INPUTS, help="of all targets together")
    parser.add_argument("seed", type=int, nargs="?", default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--keep", type=Path, help="folder for inputs that reach new lines")
    options = parser.parse_args()
    logging.disable()  # malformed access control lists
    print(f"seed {options.seed}")
    known = targets()
    whole = sum(1 / target.rarity for target in known)
    reached, reached_unguided, lines = set[Line](), set[Line](), set[Line]()
    for target in known:
        for content in target.seeds:
            check(target, content)  # what only the first use of a decoder runs is not reached by the later ones
        inputs = round(options.inputs / whole / target.rarity)
        unguided = explore(target, inputs, random.Random(options.seed), is_guided=False)
        guided = explore(target, inputs, random.Random(options.seed))
        entered = guided.entered | unguided.entered
        reached |= guided.lines
        reached_unguided |= unguided.lines
        lines |= entered
        print(
            f"{target.name}: {len(guided.lines)} of {len(entered)} lines, {len(unguided.lines)} without guidance",
            flush=True,
        )
        if options.keep is not None:
            folder = options.keep / target.name.replace("/", " ")
            folder.mkdir(parents=True, exist_ok=True)
            of_seeds = explore(target, 0, random.Random(0)).lines
            for content in kept(target, guided.corpus, of_seeds):
                (folder / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)
    report(lines, reached, reached_unguided)


def report(lines: set[Line], reached: set[Line], reached_unguided: set[Line]) -> None:
    """Print the shares of the lines that are reached, and each other line with its reason."""
    counted = {line for line in lines if is_decoder(line[0].co_filename)}
    missing = sorted(counted - reached, key=lambda line: (line[0].co_filename, line[1]))
    reasons = {line: reason(line[0].co_filename, line[0].co_qualname) for line in missing}
    print(
        f"all targets: {len(counted & reached) / len(counted):.1%} of {len(counted)} lines of the functions that they "
        f"enter, {len(counted & reached_unguided) / len(counted):.1%} without guidance"
    )
    print(f"not reached: {len(missing)} lines, {sum(map(bool, reasons.values()))} of them for a reason that is known")
    for (code, line), why in reasons.items():
        print(f"{code.co_filename}:{line} in {code.co_qualname}: {why or 'no reason is known'}")


if __name__ == "__main__":
    main()
