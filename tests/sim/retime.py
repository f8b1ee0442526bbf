"""Search near scripts that do not find their mutants any more, since a moment that they meet has moved.

    python -m tests.sim.retime [--cpu CPU_S] [--seed SEED] [NAME ...]

Each change of the controller that adds or removes a request moves what follows it, and a script that meets a window of
a few milliseconds misses it. The search keeps the story of the script (its world and its actions) and moves the times
of its actions, each time by other random amounts: by less than a millisecond, and in turn by more, up to a tenth of the
run. Each second time it draws another seed of the schedule, too. A script that fails by the invariant, and that passes
with the unchanged code, replaces the recorded one.

Without names: all scripts of `corpus` and `smoke` that miss their mutants.
"""

import argparse
import itertools
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.sim.engine import corpus, mutants, script
from tests.sim.engine.judging import judge
from tests.sim.engine.script import Script
from tests.support import tree

FOLDER: Final = Path(__file__).parent
MUTANTS: Final = FOLDER / "mutants.toml"
CPU_S: Final = 300.0
# Standard deviations of the moves, in turn.
_SPREADS_MS: Final = (0.5, 2.0, 10.0, 50.0, 250.0)
_LARGEST_SHARE: Final = 0.1


class Near(msgspec.Struct, frozen=True):
    """A script near another one that finds the mutant, and its signature."""

    signature: str
    script: Script
    tries: int


def neighbours(origin: Script, rng: random.Random) -> Iterator[Script]:
    """Yield the script itself, and endless other ones with moved actions."""
    yield origin
    for spread_ms in itertools.cycle(_SPREADS_MS):
        spread_ms = min(spread_ms, _LARGEST_SHARE * origin.duration_ms)
        # Half of the time one action moves, which keeps the others' order.
        moved = set(range(len(origin.actions)))
        if rng.random() < 0.5:
            moved = {rng.choice(sorted(moved))}
        actions = [
            replace(action, at_ms=min(max(action.at_ms + rng.gauss(0, spread_ms), 0.0), origin.duration_ms))
            if index in moved
            else action
            for index, action in enumerate(origin.actions)
        ]
        schedule = origin.schedule
        if rng.random() < 0.5:
            schedule = replace(schedule, seed=rng.getrandbits(31))
        yield replace(origin, actions=sorted(actions, key=lambda action: action.at_ms), schedule=schedule)


def search(origin: Script, must_break: Sequence[str], *, cpu_s: float, seed: int) -> Iterator[Near]:
    """Yield the neighbours that break one of the invariants, until the processor time is over."""
    end_s = time.process_time() + cpu_s
    for tries, near in enumerate(neighbours(origin, random.Random(seed)), 1):
        signature = judge(near).signature
        if signature.split(" ")[0] in must_break:
            yield Near(signature, near, tries)
        if time.process_time() > end_s:
            return


def find(path: Path, *, cpu_s: float, seed: int) -> Near | None:
    """Search near one file with its mutant, in a process of its own. Returns None if nothing was found."""
    command = [sys.executable, "-c", mutants.BOOTSTRAP, mutants.__file__, str(MUTANTS), _mutant(path).number]
    command += [
        __name__ if __name__ != "__main__" else "tests.sim.retime",
        "--within",
        str(cpu_s),
        str(seed),
        str(path),
    ]
    with subprocess.Popen(command, cwd=tree.ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            near = msgspec.json.decode(line, type=Near)
            if judge(near.script).passed:
                process.kill()
                return near
    return None


def keep(path: Path, near: Near) -> None:
    """Replace a recorded script by what was found near it."""
    if path.parent.name == "corpus":
        entry = corpus.load(path)
        values = {name: getattr(near.script, name) for name in Script.__struct_fields__}
        corpus.save(replace(entry, **values | {"signature": near.signature}), path.parent)
    else:
        path.write_text(script.dumps(replace(near.script, expect=near.signature)), encoding="utf-8")


def _mutant(path: Path) -> mutants.Mutant:
    return mutants.find(MUTANTS, corpus.load(path).mutant if path.parent.name == "corpus" else path.stem)


def main(arguments: Sequence[str]) -> int:
    """Search near the named scripts, or all. Returns 1 if one was not found."""
    if arguments[:1] == ["--within"]:
        _within(float(arguments[1]), int(arguments[2]), Path(arguments[3]))
        return 0
    parser = argparse.ArgumentParser(prog="python -m tests.sim.retime", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a file in corpus or smoke, without its suffix")
    parser.add_argument("--cpu", type=float, default=CPU_S, help="processor time of each search, in seconds")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    paths = sorted(path for name in given.names for path in FOLDER.glob(f"[cs][om]*/{name}.json"))
    if not given.names:
        paths = [path for path in sorted(FOLDER.glob("[cs][om]*/*.json")) if _has_mutant(path)]
    missed = 0
    for path in paths:
        near = find(path, cpu_s=given.cpu, seed=given.seed)
        if near is None:
            missed += 1
            sys.stdout.write(f"{path.stem}: not found\n")
        elif near.tries > 1:
            keep(path, near)
            sys.stdout.write(f"{path.stem}: {near.signature} after {near.tries} scripts\n")
        sys.stdout.flush()
    return int(bool(missed))


def _has_mutant(path: Path) -> bool:
    return path.parent.name == "smoke" or bool(corpus.load(path).mutant)


def _within(cpu_s: float, seed: int, path: Path) -> None:
    # An entry of the corpus is named after the invariant that it breaks.
    must_break = [corpus.load(path).broke] if path.parent.name == "corpus" else _mutant(path).must_break
    for near in search(corpus.load_script(path), must_break, cpu_s=cpu_s, seed=seed):
        sys.stdout.write(msgspec.json.encode(near).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
