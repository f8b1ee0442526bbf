"""Generation of logs in a folder, together with their history.

    folder/broker-1/state-change.log, .../controller.log, .../server.log, and rotated ones
    folder/kafka-5.log          the output of a container
    folder/truth.json           the history; see `truth.py`

The same settings give the same logs, byte by byte.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from .incidents import INCIDENTS
from .simulation import KACTL_IDS, Settings, Simulation
from .truth import Truth

# One topic in five allows unclean elections.
_TOPICS: Final = 10
_UNCLEAN_EVERY: Final = 5
_TRIES: Final = 5

OnProgress = Callable[[int], None]


def generate(settings: Settings, folder: Path, *, on_progress: OnProgress = lambda lines: None) -> Truth:
    """Generates logs; returns their history. `on_progress` receives the number of lines written so far."""
    folder.mkdir(parents=True, exist_ok=True)
    simulation = Simulation(settings, folder)
    _begin(simulation)
    rounds = 0
    while True:
        drawn = list(INCIDENTS)
        simulation.chance.shuffle(drawn)
        for incident in drawn:
            for _ in range(_TRIES):
                if incident(simulation):
                    break
            simulation.wait(simulation.chance.uniform(5_000, 60_000))
            on_progress(simulation.written())
            if not settings.rounds and simulation.written() >= settings.lines:
                break
        rounds += 1
        if simulation.written() >= settings.lines and rounds >= settings.rounds:
            break
    simulation.close()
    return simulation.truth


def _begin(simulation: Simulation) -> None:
    """Starts the cluster with topics that existed before the logs; in KRaft, with new topics."""
    count = max(1, simulation.settings.partitions // _TOPICS)
    topics = [
        simulation.topic(f"topic-{number}", count, unclean=number % _UNCLEAN_EVERY == 0)
        for number in range(min(_TOPICS, simulation.settings.partitions))
    ]
    if simulation.settings.kind == "kraft":
        for topic in topics:
            simulation.advance_to(simulation.control.create(simulation.now, topic))
    else:
        for topic in topics:
            for p in topic.partitions:
                p.isr, p.leader = p.replicas, p.replicas[0]
                p.leader_epoch, p.partition_epoch = (
                    simulation.chance.randrange(50),
                    100 + simulation.chance.randrange(1000),
                )
                p.online = True
        simulation.control.epoch = simulation.chance.randrange(1, 40)
        first = simulation.brokers.alive()[0] if simulation.settings.kind == "zookeeper" else KACTL_IDS[0]
        simulation.advance_to(simulation.control.take_over(simulation.now, first))
    simulation.wait(10_000)
