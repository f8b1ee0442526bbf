"""The command `python -m tests.sim`: search for violations, replay and reduce them."""

import enum

import click


class SimExit(enum.IntEnum):
    """Exit codes of these commands."""

    PASSED = 0
    VIOLATION = 1
    USAGE = 2
    PROBE = 3  # a rare moment was reached too seldom: the search has gone soft
    NON_DETERMINISM = 4


@click.group(
    epilog="Exit codes: 0 no violation, 1 violation, 2 usage, 3 a probe below its minimum, 4 two runs of one script "
    "differ."
)
def sim() -> None:
    """Simulate whole clusters: search for violations, replay and reduce them."""


def _add_commands() -> None:
    from . import replays, reporting, searching

    for command in (searching.run, replays.replay, replays.shrink, reporting.report, replays.timeline):
        sim.add_command(command)


_add_commands()
