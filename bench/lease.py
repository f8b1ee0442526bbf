"""Cost of checking a lease before each step of a leader.

    python -m bench.lease [--calls 1000000] [--runs 5]

* `check`: `Leader.check` of a valid leadership, which reads the machine's clock once.
* `clock`: the same number of calls of `Clock.lease_ns` alone, the lower bound.
* `loop`: the same loop with an empty method, which both figures contain.

Each run is the fastest of several bursts, because a burst is shorter than the time slices of other processes."""

import argparse
import time
from collections.abc import Callable
from typing import Final

from bench.figures import Found
from bench.run import main, module, undisturbed
from kactl.model import TopicPartition
from kactl.participant.leases.leader import Leader
from kactl.participant.leases.lease import Lease
from kactl.participant.leases.token import FencingToken
from kactl.runtime.clock import SystemClock

NAME: Final = "lease"
# Longer than any run.
_LEASE_NS: Final = 3_600_000_000_000
BURSTS: Final = 50


class _Empty:
    def method(self) -> None:
        return


def spent_ns(call: Callable[[], object], calls: int) -> float:
    """Returns the time of one call, in the fastest burst."""
    steps = range(max(1, calls // BURSTS))
    spent = []
    with undisturbed():
        for _ in range(BURSTS):
            began = time.perf_counter_ns()
            for _ in steps:
                call()
            spent.append((time.perf_counter_ns() - began) / len(steps))
    return min(spent)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calls", type=int, default=1_000_000, help="calls in each run")
    parser.add_argument("--runs", type=int, default=5)


async def measure(asked: argparse.Namespace, found: Found) -> None:
    clock = SystemClock()
    lease = Lease(clock.lease_ns() + _LEASE_NS)
    leader = Leader(TopicPartition("orders", 0), FencingToken(1, 1), isr=(1,), lease=lease, now_ns=clock.lease_ns)
    measured = {"check": leader.check, "clock": clock.lease_ns, "loop": _Empty().method}
    for run in range(asked.runs + 1):
        for name, call in measured.items():
            took = spent_ns(call, asked.calls)
            if run:  # the first one is a warm-up
                found.add(name, "ns", took)


if __name__ == "__main__":
    main(module(__name__))
