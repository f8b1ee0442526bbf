"""Incidents: failures and administrative operations. Each leaves the cluster healthy unless documented otherwise.

An incident is a function of the simulation that returns whether it was possible; some need more than three brokers.
"""

from collections.abc import Callable
from typing import Final

from .cluster import Partition
from .simulation import KACTL_IDS, QUORUM_IDS, Simulation

# Maximum number of partitions that are affected individually at once.
_MANY: Final = 5


def leader_dies(simulation: Simulation) -> bool:
    """Stops and restarts a broker that is not the controller."""
    number = _not_controller(simulation)
    simulation.kill(number)
    simulation.restart(number, simulation.chance.uniform(5_000, 60_000))
    return True


def controller_dies(simulation: Simulation) -> bool:
    """Stops and restarts the controller, which in ZooKeeper mode is also a broker with leaders."""
    if simulation.settings.kind != "zookeeper":
        return _moves(simulation)
    number = simulation.control.active
    simulation.kill(number)
    simulation.restart(number, simulation.chance.uniform(5_000, 60_000))
    return True


def controller_moves(simulation: Simulation) -> bool:
    """Ends the controller's session while it runs; another controller takes over."""
    return _moves(simulation)


def two_die(simulation: Simulation) -> bool:
    """Stops two brokers at once, so that the second may be elected although it is stopped."""
    if len(simulation.brokers.by_id) < 5:
        return False
    numbers = simulation.chance.sample([id for id in simulation.brokers.alive() if id != simulation.control.active], 2)
    simulation.kill(*numbers)
    for number in numbers:
        simulation.restart(number, simulation.chance.uniform(3_000, 20_000))
    return True


def rolling_restart(simulation: Simulation) -> bool:
    """Restarts all brokers in turn by controlled shutdown, then elects preferred leaders."""
    for number in sorted(simulation.brokers.by_id):
        if number == simulation.control.active:
            continue
        simulation.stop(number)
        simulation.restart(number, simulation.chance.uniform(2_000, 8_000))
    return preferred(simulation)


def preferred(simulation: Simulation) -> bool:
    """Elects preferred leaders."""
    partitions = [p for topic in simulation.cluster.topics.values() for p in topic.partitions]
    simulation.advance_to(simulation.control.prefer(simulation.now, partitions))
    simulation.wait(3_000)
    return True


def followers_flap(simulation: Simulation) -> bool:
    """Makes followers leave and rejoin the ISR repeatedly."""
    chosen = _some(simulation, simulation.partitions())
    for _ in range(simulation.chance.randint(3, 5)):
        for p in chosen:
            follower = simulation.chance.choice([broker for broker in p.replicas if broker != p.leader])
            if simulation.fall_behind(p, [follower]):
                simulation.catch_up(p)
    return bool(chosen)


def slow_follower_dies(simulation: Simulation) -> bool:
    """Stops and restarts a broker with a replica outside the ISR, so that no election takes place."""
    p = _one(simulation, [p for p in simulation.partitions() if simulation.control.active not in p.replicas[1:]])
    if p is None:
        return False
    followers = [broker for broker in p.replicas if broker not in (p.leader, simulation.control.active)]
    if not followers:
        return False
    follower = simulation.chance.choice(followers)
    if not simulation.fall_behind(p, [follower]):
        return False
    simulation.kill(follower)
    p.slow.clear()
    simulation.restart(follower, simulation.chance.uniform(2_000, 9_000))
    return True


def lone_leader_dies(simulation: Simulation) -> bool:
    """Stops the only in-sync replica: the partition has no leader until it returns."""
    return _lone(simulation, unclean=False)


def unclean_election(simulation: Simulation) -> bool:
    """Stops the only in-sync replica: another one is elected, and records that it lacks are lost."""
    return _lone(simulation, unclean=True)


def last_one_standing(simulation: Simulation) -> bool:
    """Stops the replicas of a partition one by one; those that return first may not lead."""
    usable = [p for p in simulation.partitions(unclean=False) if simulation.control.active not in p.replicas]
    p = _one(simulation, usable)
    if p is None:
        return False
    first, second = [broker for broker in p.replicas if broker != p.leader]
    leader = p.leader
    for number in (first, second, leader):
        simulation.kill(number)
        simulation.wait(2_000)
    for number in (first, leader, second):
        simulation.restart(number, simulation.chance.uniform(2_000, 8_000))
    return True


def topic_comes_and_goes(simulation: Simulation) -> bool:
    """Creates a topic, deletes it, and creates it again."""
    name = f"passing-{simulation.chance.randrange(1000)}"
    if name in simulation.cluster.topics:
        return False
    topic = simulation.topic(name, simulation.chance.randint(1, 4))
    simulation.advance_to(simulation.control.create(simulation.now, topic))
    simulation.wait(20_000)
    simulation.advance_to(simulation.control.delete(simulation.now, topic))
    simulation.wait(15_000)
    simulation.advance_to(simulation.control.create(simulation.now, simulation.topic(name, len(topic.partitions))))
    simulation.wait(5_000)
    return True


def deletion_waits(simulation: Simulation) -> bool:
    """Deletes a topic while a broker with replicas of it is stopped."""
    name = f"waiting-{simulation.chance.randrange(1000)}"
    if name in simulation.cluster.topics:
        return False
    topic = simulation.topic(name, 2)
    simulation.advance_to(simulation.control.create(simulation.now, topic))
    simulation.wait(8_000)
    away = [broker for broker in topic.partitions[0].replicas if broker != simulation.control.active]
    simulation.kill(away[0])
    simulation.wait(3_000)
    simulation.advance_to(simulation.control.delete(simulation.now, topic))
    simulation.restart(away[0], 12_000)
    simulation.wait(5_000)
    return True


def reassignment(simulation: Simulation) -> bool:
    """Reassigns a partition, including its leader, to other brokers."""
    p = _one(simulation, simulation.partitions())
    others = [] if p is None else [broker for broker in simulation.brokers.alive() if broker not in p.replicas]
    if p is None or not others:
        return False
    remaining = simulation.chance.sample(p.replicas, len(p.replicas) - 1)
    target = (simulation.chance.choice(others), *remaining)
    begin = simulation.now
    simulation.advance_to(simulation.control.reassign(simulation.now, p, target))
    simulation.wait(simulation.chance.uniform(3_000, 10_000))
    simulation.recover([p])
    simulation.advance_to(simulation.control.reassigned(simulation.now, p))
    simulation.truth.reassignments.append((p.topic.name, p.number, begin, simulation.now))
    simulation.wait(3_000)
    return True


INCIDENTS: Final[tuple[Callable[[Simulation], bool], ...]] = (
    leader_dies,
    controller_dies,
    controller_moves,
    two_die,
    rolling_restart,
    preferred,
    followers_flap,
    slow_follower_dies,
    lone_leader_dies,
    unclean_election,
    last_one_standing,
    topic_comes_and_goes,
    deletion_waits,
    reassignment,
)


def _moves(simulation: Simulation) -> bool:
    kind, active = simulation.settings.kind, simulation.control.active
    others = {"kraft": QUORUM_IDS, "kactl": KACTL_IDS}.get(kind, tuple(simulation.brokers.alive()))
    simulation.control.resign(simulation.now)
    simulation.wait(simulation.chance.uniform(20, 300))
    choice = simulation.chance.choice([id for id in others if id != active])
    simulation.advance_to(simulation.control.take_over(simulation.now, choice))
    simulation.wait(3_000)
    return True


def _lone(simulation: Simulation, *, unclean: bool) -> bool:
    usable = [p for p in simulation.partitions(unclean=unclean) if p.leader != simulation.control.active]
    p = _one(simulation, usable)
    if p is None:
        return False
    leader = p.leader
    for partition in _some(simulation, [other for other in usable if other.leader == leader]):
        simulation.fall_behind(partition, [broker for broker in partition.replicas if broker != leader])
    simulation.kill(leader)
    for topic in simulation.cluster.topics.values():
        for partition in topic.partitions:
            partition.slow.clear()
    simulation.restart(leader, simulation.chance.uniform(3_000, 15_000))
    simulation.recover(list(simulation.cluster.hosted[leader]))
    return True


def _not_controller(simulation: Simulation) -> int:
    return simulation.chance.choice(
        [number for number in simulation.brokers.alive() if number != simulation.control.active]
    )


def _one(simulation: Simulation, partitions: list[Partition]) -> Partition | None:
    return simulation.chance.choice(partitions) if partitions else None


def _some(simulation: Simulation, partitions: list[Partition]) -> list[Partition]:
    return simulation.chance.sample(partitions, min(len(partitions), simulation.chance.randint(1, _MANY)))
