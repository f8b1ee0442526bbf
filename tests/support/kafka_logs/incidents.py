"""What goes wrong, and what is asked for: each leaves the cluster whole again, unless it says otherwise.

Each is a function of the world that returns whether it could happen; with three brokers, some cannot.
"""

from collections.abc import Callable
from typing import Final

from .cluster import Partition
from .world import KACTL_IDS, QUORUM_IDS, World

# At most so many partitions have trouble of their own at once.
_MANY: Final = 5


def leader_dies(world: World) -> bool:
    """A broker that is not the controller dies, and comes back."""
    number = _not_controller(world)
    world.kill(number)
    world.back(number, world.chance.uniform(5_000, 60_000))
    return True


def controller_dies(world: World) -> bool:
    """The controller dies; if it is a broker, its leaders die with it."""
    if world.settings.kind != "zookeeper":
        return _moves(world)
    number = world.control.now
    world.kill(number)
    world.back(number, world.chance.uniform(5_000, 60_000))
    return True


def controller_moves(world: World) -> bool:
    """The controller's session ends while it is alive, and another one takes over."""
    return _moves(world)


def two_die(world: World) -> bool:
    """Two brokers die at once, so that one may be elected that is dead already."""
    if len(world.brokers.by_id) < 5:
        return False
    numbers = world.chance.sample([each for each in world.brokers.alive() if each != world.control.now], 2)
    world.kill(*numbers)
    for number in numbers:
        world.back(number, world.chance.uniform(3_000, 20_000))
    return True


def rolling_restart(world: World) -> bool:
    """All brokers in turn, by controlled shutdown; then the preferred leaders lead again."""
    for number in sorted(world.brokers.by_id):
        if number == world.control.now:
            continue
        world.stop(number)
        world.back(number, world.chance.uniform(2_000, 8_000))
    return preferred(world)


def preferred(world: World) -> bool:
    """The balance is checked, and preferred leaders take over."""
    every = [p for topic in world.cluster.topics.values() for p in topic.partitions]
    world.until(world.control.prefer(world.now, every))
    world.wait(3_000)
    return True


def followers_flap(world: World) -> bool:
    """Followers fall out of the ISR and come back, again and again."""
    chosen = _some(world, world.partitions())
    for _ in range(world.chance.randint(3, 5)):
        for p in chosen:
            follower = world.chance.choice([broker for broker in p.replicas if broker != p.leader])
            if world.fall_behind(p, [follower]):
                world.catch_up(p)
    return bool(chosen)


def slow_follower_dies(world: World) -> bool:
    """A follower is out of the ISR when its broker dies, so that nothing is elected, and comes back as it was."""
    p = _one(world, [p for p in world.partitions() if world.control.now not in p.replicas[1:]])
    if p is None:
        return False
    followers = [broker for broker in p.replicas if broker not in (p.leader, world.control.now)]
    if not followers:
        return False
    follower = world.chance.choice(followers)
    if not world.fall_behind(p, [follower]):
        return False
    world.kill(follower)
    p.slow.clear()
    world.back(follower, world.chance.uniform(2_000, 9_000))
    return True


def lone_leader_dies(world: World) -> bool:
    """The only one in sync dies: nobody leads until it is back."""
    return _lone(world, unclean=False)


def unclean_election(world: World) -> bool:
    """The only one in sync dies, and somebody leads who is not: what the others do not have is lost."""
    return _lone(world, unclean=True)


def last_one_standing(world: World) -> bool:
    """The replicas of a partition die one after the other; those who come back first may not lead."""
    usable = [p for p in world.partitions(unclean=False) if world.control.now not in p.replicas]
    p = _one(world, usable)
    if p is None:
        return False
    first, second = [broker for broker in p.replicas if broker != p.leader]
    leader = p.leader
    for number in (first, second, leader):
        world.kill(number)
        world.wait(2_000)
    for number in (first, leader, second):
        world.back(number, world.chance.uniform(2_000, 8_000))
    return True


def topic_comes_and_goes(world: World) -> bool:
    """A topic is created, deleted, and created again under its name."""
    name = f"passing-{world.chance.randrange(1000)}"
    if name in world.cluster.topics:
        return False
    topic = world.topic(name, world.chance.randint(1, 4))
    world.until(world.control.create(world.now, topic))
    world.wait(20_000)
    world.until(world.control.delete(world.now, topic))
    world.wait(15_000)
    world.until(world.control.create(world.now, world.topic(name, len(topic.partitions))))
    world.wait(5_000)
    return True


def deletion_waits(world: World) -> bool:
    """A topic is deleted while a broker is away that holds replicas of it."""
    name = f"waiting-{world.chance.randrange(1000)}"
    if name in world.cluster.topics:
        return False
    topic = world.topic(name, 2)
    world.until(world.control.create(world.now, topic))
    world.wait(8_000)
    away = [broker for broker in topic.partitions[0].replicas if broker != world.control.now]
    world.kill(away[0])
    world.wait(3_000)
    world.until(world.control.delete(world.now, topic))
    world.back(away[0], 12_000)
    world.wait(5_000)
    return True


def reassignment(world: World) -> bool:
    """A partition moves to other brokers, leader and all."""
    p = _one(world, world.partitions())
    others = [] if p is None else [broker for broker in world.brokers.alive() if broker not in p.replicas]
    if p is None or not others:
        return False
    kept = world.chance.sample(p.replicas, len(p.replicas) - 1)
    target = (world.chance.choice(others), *kept)
    begin = world.now
    world.until(world.control.reassign(world.now, p, target))
    world.wait(world.chance.uniform(3_000, 10_000))
    world.recover([p])
    world.until(world.control.reassigned(world.now, p))
    world.truth.reassignments.append((p.topic.name, p.number, begin, world.now))
    world.wait(3_000)
    return True


INCIDENTS: Final[tuple[Callable[[World], bool], ...]] = (
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


def _moves(world: World) -> bool:
    kind, now = world.settings.kind, world.control.now
    others = {"kraft": QUORUM_IDS, "kactl": KACTL_IDS}.get(kind, tuple(world.brokers.alive()))
    world.control.resign(world.now)
    world.wait(world.chance.uniform(20, 300))
    choice = world.chance.choice([each for each in others if each != now])
    world.until(world.control.take_over(world.now, choice))
    world.wait(3_000)
    return True


def _lone(world: World, *, unclean: bool) -> bool:
    usable = [p for p in world.partitions(unclean=unclean) if p.leader != world.control.now]
    p = _one(world, usable)
    if p is None:
        return False
    leader = p.leader
    for each in _some(world, [other for other in usable if other.leader == leader]):
        world.fall_behind(each, [broker for broker in each.replicas if broker != leader])
    world.kill(leader)
    for topic in world.cluster.topics.values():
        for each in topic.partitions:
            each.slow.clear()
    world.back(leader, world.chance.uniform(3_000, 15_000))
    world.recover(list(world.cluster.held[leader]))
    return True


def _not_controller(world: World) -> int:
    return world.chance.choice([number for number in world.brokers.alive() if number != world.control.now])


def _one(world: World, partitions: list[Partition]) -> Partition | None:
    return world.chance.choice(partitions) if partitions else None


def _some(world: World, partitions: list[Partition]) -> list[Partition]:
    return world.chance.sample(partitions, min(len(partitions), world.chance.randint(1, _MANY)))
