"""Order of a rolling restart: groups of brokers that can stop at the same time, and the order with the fewest moves.

A group is harmless if its failure takes no partition offline, loses no record, and leaves no more partitions under
min.insync.replicas than there are now. That does not depend on the order, because each group is back in all its ISRs
before the next one stops. The order determines how often leaders move, because they stay where they moved.
"""

from collections.abc import Iterator

import numpy as np

from kactl.decide.state.rows import Bools

from .classes import Floats
from .engine import Engine, InSequence, OneMore, Simultaneous
from .failure_model import LOSSY, MOVED, OFFLINE, UNDER_MIN
from .outcomes import RestartPlan, RestartStep
from .topology import BrokerPositions


def plan_restarts(engine: Engine, *, together: int = 1) -> RestartPlan:
    """Plan a restart of all live brokers.

    Args:
        together: the limit of brokers per step.
    """
    before = engine.sums(Simultaneous(((),)))
    groups = list(_groups(engine, before.counts[0], together))
    orders = {"by broker id": sorted(groups)}
    led = before.load[0]
    by_load = sorted(groups, key=lambda group: float(led[list(group)].sum()))
    orders["the brokers with the fewest leaders first"] = by_load
    orders["the brokers with the most leaders first"] = by_load[::-1]
    rolled = {order: engine.sums(InSequence(tuple(steps))) for order, steps in orders.items()}
    order = min(rolled, key=lambda name: float(rolled[name].counts[-1, MOVED]))
    counts, base = rolled[order].counts, before.counts[0]
    steps = tuple(_step(engine, group, counts[index], base) for index, group in enumerate(orders[order]))
    return RestartPlan(
        together=together,
        order=order,
        steps=steps,
        moves=int(counts[-1, MOVED]),
        harmful=sum(not step.harmless for step in steps),
    )


def _groups(engine: Engine, before: Floats, together: int) -> Iterator[BrokerPositions]:
    """Yield the brokers in groups. A group grows by the first broker that keeps it harmless, of its own racks first."""
    topology = engine.topology
    rack_of = {broker: rack for rack, brokers in topology.racks.items() for broker in brokers}
    left = list(topology.positions(topology.alive))
    while left:
        group = [left.pop(0)]
        while len(group) < together and left:
            (counts,) = engine.sums(OneMore((tuple(sorted(group)),))).counts
            racks = {rack_of.get(topology.brokers[member]) for member in group} - {None}
            # A group of one that is harmful by itself stays alone.
            fits = [other for other in left if _is_harmless(counts[other], before)]
            if not fits:
                break
            chosen = min(fits, key=lambda other: (rack_of.get(topology.brokers[other]) not in racks, other))
            left.remove(chosen)
            group.append(chosen)
        yield tuple(sorted(group))


def _is_harmless(counts: Floats, before: Floats) -> bool:
    worse: Bools = np.array([counts[LOSSY] > 0, *(counts[each] > before[each] for each in (OFFLINE, UNDER_MIN))])
    return not worse.any()


def _step(engine: Engine, group: BrokerPositions, counts: Floats, before: Floats) -> RestartStep:
    topology = engine.topology
    brokers = tuple(topology.brokers[position] for position in group)
    return RestartStep(
        brokers=brokers,
        racks=tuple(rack for rack, inside in topology.racks.items() if not set(inside).isdisjoint(brokers)),
        harmless=_is_harmless(counts, before),
        offline_more=_more(counts, before, OFFLINE),
        under_min_more=_more(counts, before, UNDER_MIN),
        lossy=int(counts[LOSSY]),
        moved=int(counts[MOVED]),
    )


def _more(counts: Floats, before: Floats, which: int) -> int:
    return int(counts[which] - before[which])
