"""Mutation fuzzing of all decoders of bytes that kactl has not written.

Run as `python -m tests.fuzz [INPUTS] [SEED] [--jobs N] [--target NAME] [--journal FILE]`, or by `make fuzz`. It prints
a table of the targets: the inputs, the share that was accepted, the processor time, and the longest time and largest
memory of one input. It exits with 1 at the first input that violates an oracle, and prints the target and that input.
The number of processes does not change the inputs. With a journal, a run that ended early goes on where it was.
"""

import argparse
import os
import random
import sys
from pathlib import Path
from typing import Final

from . import campaign

_INPUTS: Final = 10_000_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz all decoders.")
    parser.add_argument("inputs", type=int, nargs="?", default=_INPUTS, help="of all targets together")
    parser.add_argument("seed", type=int, nargs="?", default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--target", action="append", help="name of a target; all by default")
    parser.add_argument("--journal", type=Path, metavar="FILE", help="of finished parts, which are not run again")
    options = parser.parse_args()
    known = campaign.set_up_process()
    chosen = [known[name] for name in options.target or known]
    print(f"seed {options.seed}", flush=True)
    try:
        figures = campaign.fuzz(chosen, options.inputs, options.seed, options.jobs, options.journal)
    except Exception as error:
        sys.exit("\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])]))
    campaign.report(figures)


if __name__ == "__main__":
    main()
