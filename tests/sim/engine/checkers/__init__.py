"""Checkers of the invariants, and counters of rare moments, over the history of a run.

`events` lists the events that they read, and the modules that record them. No checker calls the code that it judges. A
run attaches them by

    observer = Observer(history)
    watch(history, checkers(rules, observer.memories), loop.halt)
    observer.attach(controller, node="controller 100", incarnation=1)  # for each instance, before it starts
"""

from collections.abc import Callable, Iterable

from kactl.testing.violations import Checker

from .calls import Calls
from .channels import Channels
from .continuity import Continuity
from .eligible import Eligible
from .entries import Entries
from .fence import Fence
from .fenced import Fenced
from .handlers import Handlers
from .interruptions import Interruptions
from .leases import Leases
from .memory import Memories, Memory
from .observe import Observer
from .owners import Owners
from .probes import PROBES, Probes
from .proposals import Proposals
from .receivers import Receivers
from .releases import Releases
from .routes import Routes
from .sessions import Sessions
from .store import Store
from .stored import Rules
from .topics import Topics

__all__ = [
    "PROBES",
    "Calls",
    "Channels",
    "Continuity",
    "Eligible",
    "Entries",
    "Fence",
    "Fenced",
    "Handlers",
    "Interruptions",
    "Leases",
    "Memories",
    "Memory",
    "Observer",
    "Owners",
    "Probes",
    "Proposals",
    "Receivers",
    "Releases",
    "Routes",
    "Rules",
    "Sessions",
    "Store",
    "Topics",
    "checkers",
]


def checkers(rules: Rules, memories: Callable[[], Iterable[Memory]] = tuple) -> list[Checker]:
    """Returns a new checker of each kind, without `Probes`.

    Args:
        memories: returns the memories of the active controllers; see `Observer.memories`.
    """
    return [
        Fence(),
        Entries(rules),
        Eligible(),
        Proposals(),
        Receivers(rules),
        Channels(),
        Memories(memories),
        Topics(),
        Calls(),
        Store(),
        Leases(),
        Continuity(),
        Owners(),
        Interruptions(),
        Sessions(),
        Fenced(rules),
        Handlers(),
        Releases(rules),
        Routes(),
    ]
