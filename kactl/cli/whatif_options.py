"""Options of both failure simulations: that of the running cluster, and that of logs and files."""

from typing import Final

import click

from kactl.decide.whatif import Kind

from .exits import Exit, Failure

SWEEPS: Final = tuple(kind.value for kind in Kind if kind is not Kind.KILL)

kill_option: Final = click.option(
    "--kill",
    "kills",
    multiple=True,
    metavar="IDS",
    help="Brokers that fail together: 3,4 or rack=a,7; may be repeated.",
)


def sweeps_of(text: str) -> list[Kind]:
    """Returns the kinds that `--sweep` names, each once.

    Raises:
        Failure: USAGE; it names none, or an unknown one.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in SWEEPS:
            raise Failure(f"--sweep: {word!r} is not one of {', '.join(SWEEPS)}", Exit.USAGE)
    if not words:
        raise Failure(f"--sweep: {text!r} is empty: choose from {', '.join(SWEEPS)}", Exit.USAGE)
    return [Kind(word) for word in dict.fromkeys(words)]
