"""Replace controllers by brokers in assignments.

Brokers that create topics place replicas on every entry of their list of brokers. One entry may be a controller's,
which is listed only so that clients find it and holds no replicas. An assignment can be changed as long as no broker
has acted on it. The controller is replaced by a broker that is not in the list yet: of a rack that the list lacks if
there is one, and of these the broker with the fewest replicas. If there is none, the list becomes shorter.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType

from kactl.model import Assignment, TopicPartition


def rewritten(
    assignments: Mapping[TopicPartition, Assignment],
    *,
    controllers: Collection[int],
    load: Mapping[int, int],
    racks: Mapping[int, str | None] = MappingProxyType({}),
) -> dict[TopicPartition, Assignment]:
    """Returns the changed assignments: those that name a controller, without it.

    Args:
        controllers: ids that hold no replicas.
        load: number of replicas of each live broker; at equal load the lowest id is chosen. Each choice counts as load
            of the next ones.
        racks: of the brokers that have one.

    Returns:
        The changed assignments. A partition is left out, and stays as it is, if there is no broker for it.
    """
    load_of = Counter({broker: count for broker, count in load.items() if broker not in controllers})
    changed = {}
    for name, assignment in assignments.items():
        if assignment.is_being_reassigned or not any(broker in controllers for broker in assignment.replicas):
            continue
        taken = {broker for broker in assignment.replicas if broker not in controllers}
        replicas = []
        for broker in assignment.replicas:
            if broker in controllers:
                free = load_of.keys() - taken
                if not free:
                    continue
                filled = {racks.get(broker) for broker in taken}
                broker = min(free, key=lambda broker: (racks.get(broker) in filled, load_of[broker], broker))
                taken.add(broker)
                load_of[broker] += 1
            replicas.append(broker)
        if replicas:
            changed[name] = Assignment(tuple(replicas))
    return changed
