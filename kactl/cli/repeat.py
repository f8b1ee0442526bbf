"""`--watch`: repeat a command that shows something."""

import functools
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from .common_options import Settings
from .exits import Exit, Failure

INTERVAL_S: Final = 2.0
# Shorter intervals add load without new information.
INTERVAL_S_MIN: Final = 0.1
CLEAR: Final = "\x1b[H\x1b[2J"

_Command = TypeVar("_Command", bound=Callable[..., Any])


def interval_option(meaning: str) -> Callable[[_Command], _Command]:
    """Returns the option `--interval` of a command that repeats."""
    return click.option(
        "--interval",
        "interval_s",
        type=click.FloatRange(min=INTERVAL_S_MIN, max=3600.0),
        default=INTERVAL_S,
        show_default=True,
        metavar="SECONDS",
        help=meaning,
    )


def watchable(command: _Command) -> _Command:
    """Add `--watch` and `--interval` to a command, below the common options."""

    @click.option("--watch", "watched", is_flag=True, help="Repeat until Ctrl-C.")
    @interval_option("Interval of --watch.")
    @functools.wraps(command)
    def run(settings: Settings, *, watched: bool, interval_s: float, **values: Any) -> None:
        if not watched:
            command(settings, **values)
            return
        while True:
            if settings.form() == "table" and sys.stdout.isatty():
                click.echo(CLEAR, nl=False)
            try:
                command(settings, **values)
            except Failure as failure:
                if failure.code is not Exit.UNREACHABLE:
                    raise
                settings.note(failure.message)
            sys.stdout.flush()
            time.sleep(interval_s)

    decorated: Any = run
    result: _Command = decorated
    return result
