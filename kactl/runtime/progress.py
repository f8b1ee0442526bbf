"""Progress of long work: the current step, how many of its parts are complete, and how many there are."""

from collections.abc import Callable

# Receives the current step, the number of completed parts, and the number of known parts, which is 0 while unknown.
ProgressCallback = Callable[[str, int, int], None]


def no_progress(step: str, done: int, total: int) -> None:
    """Ignore progress."""
