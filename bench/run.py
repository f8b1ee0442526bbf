"""Command line of a benchmark: common options, event loop, list of figures, output file.

A benchmark is a module with `NAME`, a docstring with a description of the measurement in its first line,
`options(parser)`, and `async measure(asked, found)`, which adds figures and prints progress.
"""

import argparse
import asyncio
import contextlib
import gc
import importlib.util
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from .figures import Found, Results, Setting
from .tables import listed

# Options that do not affect the measurement.
_NOT_SETTINGS: Final = frozenset({"output", "loop", "seed", "quiet"})


class Bench(Protocol):
    """Interface of a benchmark module."""

    __doc__: str | None

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of the module
        """Name after `python -m bench.`."""

    def options(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options of this benchmark to the common ones."""

    async def measure(self, asked: argparse.Namespace, found: Found) -> None:
        """Measures and adds figures to `found`."""


def numbers(text: str) -> tuple[int, ...]:
    """Parses numbers separated by commas; underscores may separate thousands."""
    return tuple(int(part) for part in text.split(","))


def words(text: str) -> tuple[str, ...]:
    """Parses words separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def main(bench: Bench, argv: Sequence[str] | None = None) -> Results:
    """Runs a benchmark with the options of the command line."""
    about = (bench.__doc__ or "").strip()
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{bench.NAME}",
        description=about.splitlines()[0] if about else None,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    bench.options(parser)
    parser.add_argument("--output", type=Path, help="write all figures to this file, as JSON")
    parser.add_argument("--loop", choices=("auto", "uvloop", "asyncio"), default="auto", help="the event loop")
    parser.add_argument("--seed", type=int, default=1, help="seed of random values")
    parser.add_argument("--quiet", action="store_true", help="do not list all figures at the end")
    asked = parser.parse_args(argv)
    loop = event_loop(asked.loop)
    found = Found(bench.NAME, seed=asked.seed, settings=settings_of(asked))
    run(bench.measure(asked, found), loop)
    results = found.results(loop=loop)
    if not asked.quiet:
        print(f"\n{listed(results.figures)}")
    if asked.output is not None:
        found.write(asked.output, loop=loop)
        print(f"\nwritten to {asked.output}")
    return results


def event_loop(asked: str) -> str:
    """Returns the event loop to use: by default uvloop if it is installed, as in kactl's own processes."""
    if asked == "auto":
        return "uvloop" if importlib.util.find_spec("uvloop") is not None else "asyncio"
    return asked


def run(work: Coroutine[Any, Any, None], loop: str) -> None:
    """Runs a coroutine to its end on an event loop of this kind."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Runs the block without the garbage collector, after one collection, as kactl's own processes do."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def say(text: str = "") -> None:
    """Prints and flushes, so that progress is visible."""
    print(text, flush=True)


def module(name: str) -> Bench:
    """Returns the benchmark that runs as the main program."""
    found: Any = sys.modules[name]
    bench: Bench = found
    return bench


def settings_of(asked: argparse.Namespace) -> dict[str, Setting]:
    """Returns the options that affect figures. Paths are left out, because they do not and may be private."""
    given = {name: value for name, value in vars(asked).items() if name not in _NOT_SETTINGS}
    return {
        name: value if value is None else _plain(value) for name, value in given.items() if not isinstance(value, Path)
    }


def _plain(value: Any) -> Setting:
    return value if isinstance(value, str | int | float | bool | tuple) else str(value)
