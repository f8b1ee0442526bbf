"""Assignments that name a controller are rewritten to name brokers.

Brokers that create topics place replicas on every entry of their list of brokers, and one of these may be a
controller's, there to be asked and not to hold anything. What they wrote can be changed as long as nobody has acted on
it: the controller's place in the list goes to the broker that holds the fewest replicas of all that are not in the
list yet; where there is none, the list becomes shorter.
"""

from collections import Counter
from collections.abc import Collection, Mapping

from kactl.model import Assignment, TopicPartition


def rewritten(
    assignments: Mapping[TopicPartition, Assignment],
    *,
    controllers: Collection[int],
    load: Mapping[int, int],
) -> dict[TopicPartition, Assignment]:
    """Those that name a controller, without.

    Args:
        controllers: ids that hold nothing.
        load: how many replicas each live broker holds; at equal load the lowest id is taken. What is placed here
            counts for what is placed next.

    Returns:
        what changed; a partition for which there is no broker at all is left out, and stays as it is.
    """
    held = Counter({broker: count for broker, count in load.items() if broker not in controllers})
    changed = {}
    for name, assignment in assignments.items():
        if assignment.is_being_reassigned or not any(broker in controllers for broker in assignment.replicas):
            continue
        taken = {broker for broker in assignment.replicas if broker not in controllers}
        replicas = []
        for broker in assignment.replicas:
            if broker in controllers:
                free = held.keys() - taken
                if not free:
                    continue
                broker = min(free, key=lambda each: (held[each], each))
                taken.add(broker)
                held[broker] += 1
            replicas.append(broker)
        if replicas:
            changed[name] = Assignment(tuple(replicas))
    return changed
