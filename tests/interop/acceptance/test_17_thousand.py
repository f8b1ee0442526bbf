"""Failover time with a thousand partitions."""

import time

import pytest

from .bench import BROKERS, MARGIN_S, OTHER, Bench, until

MANY_S = 180.0


@pytest.mark.checklist(17)
def test_failover_time_of_a_thousand_partitions(bench: Bench) -> None:
    before = bench.reader.states()
    began = time.monotonic()
    bench.create("many", "--partitions", "1000", "--replication-factor", "3", partitions=1000)
    created_s = time.monotonic() - began
    until(bench.ruled, "all brokers to have answered", MANY_S)
    answered_s = time.monotonic() - began
    until(bench.whole, "whole ISRs", MANY_S)
    _, epoch = bench.reader.holder()
    states = bench.reader.states()

    bench.other.configure(takeover=True)
    bench.kactl.kill()
    began = time.monotonic()
    bench.other.start()
    active_s = time.monotonic() - began
    until(lambda: queued(bench) == 0, "all brokers to have answered", MANY_S)
    told_s = time.monotonic() - began
    seen = bench.other.partitions()
    after = bench.reader.states()

    print(
        f"\nlevel {bench.level}: 1,000 partitions on three brokers: created and led after {created_s:.2f} s, known to "
        f"all after {answered_s:.2f} s; a second instance was active {active_s:.2f} s after the start of its process, "
        f"and all brokers had answered after {told_s:.2f} s"
    )
    assert len(states) == len(before) + 1000
    # If the process starts more slowly than the dead one's session lasts, a broker becomes controller first.
    assert bench.reader.holder() in {(OTHER, epoch + 1), (OTHER, epoch + 2)}
    # The takeover writes nothing: a controller's write raises the leader epoch. With the same epoch a leader may remove
    # a slow follower from the ISR, and add it again, also while the states before the takeover are read.
    assert {name: (state.leader, state.leader_epoch) for name, state in after.items()} == {
        name: (state.leader, state.leader_epoch) for name, state in states.items()
    }
    assigned = bench.reader.assignments()
    assert all(state.leader in state.isr and {*state.isr} <= {*assigned[name]} for name, state in after.items())
    assert {name: partition["leader"] for name, partition in seen.items()} == {
        name: state.leader for name, state in states.items()
    }
    assert "Traceback" not in bench.other.log
    assert bench.reader.registered() == set(BROKERS)
    until(bench.whole, "whole ISRs", MARGIN_S)


def queued(bench: Bench) -> int:
    """Return the number of requests that wait for a response."""
    return sum(broker["queue_size"] for broker in bench.other.get("/v1/brokers")["items"])
