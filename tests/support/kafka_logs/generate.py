"""Logs into a folder, with the truth beside them.

    folder/broker-1/state-change.log, .../controller.log, .../server.log, and rotated ones
    folder/kafka-5.log          a container's stream
    folder/truth.json           what happened; see `truth.py`

The same settings give the same logs, byte by byte.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from .incidents import INCIDENTS
from .truth import Truth
from .world import KACTL_IDS, Settings, World

# A topic in five may elect somebody who is not in sync.
_TOPICS: Final = 10
_UNCLEAN_EVERY: Final = 5
_TRIES: Final = 5

Tell = Callable[[int], None]


def generate(settings: Settings, folder: Path, *, tell: Tell = lambda lines: None) -> Truth:
    """Write logs; `tell` hears of the lines written so far."""
    folder.mkdir(parents=True, exist_ok=True)
    world = World(settings, folder)
    _begin(world)
    rounds = 0
    while True:
        drawn = list(INCIDENTS)
        world.chance.shuffle(drawn)
        for incident in drawn:
            for _ in range(_TRIES):
                if incident(world):
                    break
            world.wait(world.chance.uniform(5_000, 60_000))
            tell(world.written())
            if not settings.rounds and world.written() >= settings.lines:
                break
        rounds += 1
        if world.written() >= settings.lines and rounds >= settings.rounds:
            break
    world.close()
    return world.truth


def _begin(world: World) -> None:
    """The cluster is started: topics of before the logs, whose partitions have had leaders before, or KRaft's first."""
    count = max(1, world.settings.partitions // _TOPICS)
    topics = [
        world.topic(f"topic-{number}", count, unclean=number % _UNCLEAN_EVERY == 0)
        for number in range(min(_TOPICS, world.settings.partitions))
    ]
    if world.settings.kind == "kraft":
        for topic in topics:
            world.until(world.control.create(world.now, topic))
    else:
        for topic in topics:
            for p in topic.partitions:
                p.isr, p.leader = p.replicas, p.replicas[0]
                p.leader_epoch, p.partition_epoch = world.chance.randrange(50), 100 + world.chance.randrange(1000)
                p.online = True
        world.control.epoch = world.chance.randrange(1, 40)
        first = world.brokers.alive()[0] if world.settings.kind == "zookeeper" else KACTL_IDS[0]
        world.until(world.control.take_over(world.now, first))
    world.wait(10_000)
