"""Checkers that read a history as it grows, with their cost."""

import dataclasses
import time
from collections.abc import Callable, Iterable

from kactl.testing.history import Event, History, Listener
from kactl.testing.violations import Checker, Violation


@dataclasses.dataclass
class Cost:
    """Cost of one checker so far."""

    events: int = 0
    cpu_s: float = 0.0


def watch(
    history: History,
    checkers: Iterable[Checker],
    on_violation: Callable[[Violation], None],
    *,
    costs: dict[str, Cost] | None = None,
) -> None:
    """Let checkers read a history as it grows.

    Args:
        on_violation: called inside the step that recorded the violating event; `SimLoop.halt` ends the run there.
        costs: where the cost of each checker is added up, by the name of its class; by default it is not measured.
    """
    for checker in checkers:
        listener = _listener(checker, on_violation)
        if costs is not None:
            listener = _measured(listener, costs.setdefault(type(checker).__name__, Cost()))
        history.subscribe(checker.kinds, listener)


def _listener(checker: Checker, on_violation: Callable[[Violation], None]) -> Listener:
    def listen(event: Event) -> None:
        violation = checker.check(event)
        if violation is not None:
            on_violation(violation)

    return listen


def _measured(listener: Listener, cost: Cost) -> Listener:
    def listen(event: Event) -> None:
        began_s = time.process_time()
        listener(event)
        cost.events += 1
        cost.cpu_s += time.process_time() - began_s

    return listen
