"""How a bench is run from the command line: what all of them can be asked for, and what becomes of the figures.

A bench is a module with `NAME`, a docstring whose first line says what it measures, `options(parser)`, and
`async measure(asked, found)`, which adds figures and prints what a person wants to see while it runs. Here stand the
event loop, the final list, and the file.
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

# Settings that say where the figures go, and nothing of what was measured.
_NOT_SETTINGS: Final = frozenset({"output", "loop", "seed", "quiet"})


class Bench(Protocol):
    """What every bench's module has."""

    __doc__: str | None

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of the module
        """What stands behind `python -m bench.`."""

    def options(self, parser: argparse.ArgumentParser) -> None:
        """Add what this bench can be asked for beside what all can."""

    async def measure(self, asked: argparse.Namespace, found: Found) -> None:
        """Measure, and add to `found`."""


def numbers(text: str) -> tuple[int, ...]:
    """Numbers by commas, thousands apart by underscores if that is easier to read."""
    return tuple(int(part) for part in text.split(","))


def words(text: str) -> tuple[str, ...]:
    """Words by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def main(bench: Bench, argv: Sequence[str] | None = None) -> Results:
    """Run a bench as it was asked for."""
    about = (bench.__doc__ or "").strip()
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{bench.NAME}",
        description=about.splitlines()[0] if about else None,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    bench.options(parser)
    parser.add_argument("--output", type=Path, help="write all figures there, as JSON")
    parser.add_argument("--loop", choices=("auto", "uvloop", "asyncio"), default="auto", help="the event loop")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn by chance")
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
    """Which event loop it is to be: uvloop where there is one, as for kactl's own processes."""
    if asked == "auto":
        return "uvloop" if importlib.util.find_spec("uvloop") is not None else "asyncio"
    return asked


def run(work: Coroutine[Any, Any, None], loop: str) -> None:
    """Run it to its end on that kind of event loop."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """The block without the garbage collector, as kactl's own processes keep it out of events; one run before it."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def say(text: str = "") -> None:
    """Print at once: whoever waits wants to see that something happens."""
    print(text, flush=True)


def module(name: str) -> Bench:
    """The bench whose module is running as the program."""
    found: Any = sys.modules[name]
    bench: Bench = found
    return bench


def settings_of(asked: argparse.Namespace) -> dict[str, Setting]:
    """What was asked for, but not where things are kept: that changes no figure, and is nobody else's business."""
    given = {name: value for name, value in vars(asked).items() if name not in _NOT_SETTINGS}
    return {
        name: value if value is None else _plain(value) for name, value in given.items() if not isinstance(value, Path)
    }


def _plain(value: Any) -> Setting:
    return value if isinstance(value, str | int | float | bool | tuple) else str(value)
