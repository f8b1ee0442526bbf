"""Command that generates docs/performance.md from stored figures.

    python -m bench.report RESULTS... --out docs/performance.md

RESULTS are JSON files written by benchmarks, or folders of them. If a benchmark has two runs, the later one is used. A
missing benchmark is marked as not measured. Pictures go into a folder beside the page, with the name of the page.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.figures import NotFigures, read_all

from .page import page
from .parts import Parts


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("docs/performance.md"))
    arguments = parser.parse_args(argv)
    try:
        results = read_all(arguments.results)
    except NotFigures as error:
        print(error, file=sys.stderr)
        return 2
    parts = Parts(arguments.out)
    parts.write(page(results, parts))
    print(f"{arguments.out}: {', '.join(results) or 'nothing'} and {len(parts.pictures)} pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
