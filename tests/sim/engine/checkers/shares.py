"""Shares of the owners of ownership topics at one moment: LIV-11; `quiet` has their limits."""

from collections import Counter
from collections.abc import Iterator

from kactl.actors.system import Controller
from tests.sim.engine.cluster import SimulatedCluster

from .stored import is_ownership

_STANDBY = "ownership.standby"


class SharesNow:
    """Compares the stored owners and standbys with those that the live participants allow.

    A participant whose handler has failed for a shard may have to own fewer. Such topics are left out.
    """

    def __init__(self, cluster: SimulatedCluster, controller: Controller) -> None:
        self._cluster = cluster
        registered, leaving = cluster.stored.registrations(), controller.cluster.shutting_down
        self._members = [
            broker
            for broker in cluster.fleet.running()
            if broker.has_process and broker.id in registered and broker.id not in leaving
        ]
        held = cluster.stored.leaderships()
        topics = {name: topic for name, topic in cluster.stored.topics().items() if is_ownership(topic.id.hex())}
        self._topics = {
            topic: [(name, held.get(name)) for name in cluster.stored.assignments() if name.topic == topic]
            for topic in topics
            if topic not in cluster.stored.deletions()
        }
        self._topics = {
            topic: shards
            for topic, shards in self._topics.items()
            if not any(member.has_failed(name) for name, _ in shards for member in self._members)
        }

    def uneven(self) -> Iterator[str]:
        """Of each topic, each participant owns the average, within one shard; none is idle while another owns two."""
        for topic, shards in self._topics.items():
            counts = Counter({member.id: 0 for member in self._members})
            counts.update(held.leader for _, held in shards if held is not None and held.leader in counts)
            if not counts:
                continue
            most, least, average = max(counts.values()), min(counts.values()), counts.total() / len(counts)
            if most > average + 1 or least < average - 1 or (not least and most > 1):
                yield f"the shares of {topic} are {dict(sorted(counts.items()))}"

    def without_standbys(self) -> Iterator[str]:
        """Each shard has its standbys, as far as there are participants."""
        for topic, shards in self._topics.items():
            wanted = int(self._cluster.stored.config(topic).get(_STANDBY, "0"))
            for name, held in shards:
                if held is None or held.leader not in {member.id for member in self._members}:
                    continue  # reported as a shard without an owner
                if len(held.isr) - 1 != min(wanted, len(self._members) - 1):
                    yield f"{name} has standbys {[each for each in held.isr if each != held.leader]}, not {wanted}"
