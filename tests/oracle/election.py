"""Leader elections, one partition at a time. A result of None means that no replica may lead."""

import dataclasses
from collections.abc import Callable

from kactl.decide.machines.election import Election

from .model import Leading, ObjectCluster, Partition


@dataclasses.dataclass(slots=True)
class Choice:
    """A leader, its ISR and recovery state, and the brokers that receive a LeaderAndIsr request."""

    leader: int
    isr: list[int]
    recovering: bool
    told: list[int]
    unclean: bool = False


def first_leader(cluster: ObjectCluster, partition: Partition) -> Choice | None:
    online = [broker for broker in partition.replicas if cluster.is_online(broker, partition.name)]
    if not online:
        return None
    return Choice(online[0], isr=online, recovering=False, told=online)


def offline(cluster: ObjectCluster, partition: Partition, leading: Leading, *, unclean: bool) -> Choice | None:
    """Elect a leader for an OFFLINE partition, outside the ISR only if `unclean` and no member is online."""
    online = [broker for broker in partition.replicas if cluster.is_online(broker, partition.name)]
    in_sync = [broker for broker in leading.isr if cluster.is_online(broker, partition.name)]
    for broker in online:
        if broker in in_sync:
            return Choice(broker, isr=in_sync, recovering=leading.recovering, told=online)
    if in_sync or not unclean or not online:
        return None
    leader = online[0]
    return Choice(leader, isr=[leader], recovering=leading.recovering or cluster.recovery, told=online, unclean=True)


def reassignment(cluster: ObjectCluster, partition: Partition, leading: Leading, *, unclean: bool) -> Choice | None:
    target = partition.target
    for broker in target:
        if broker in leading.isr and cluster.is_online(broker, partition.name):
            return Choice(broker, isr=leading.isr, recovering=leading.recovering, told=target)
    return None


def preferred(cluster: ObjectCluster, partition: Partition, leading: Leading, *, unclean: bool) -> Choice | None:
    for broker in partition.replicas[:1]:
        if broker in leading.isr and cluster.is_online(broker, partition.name):
            return Choice(broker, isr=leading.isr, recovering=leading.recovering, told=list(partition.replicas))
    return None


def controlled_shutdown(
    cluster: ObjectCluster, partition: Partition, leading: Leading, *, unclean: bool
) -> Choice | None:
    serving = [
        broker for broker in partition.replicas if cluster.is_online(broker, partition.name, include_shutting_down=True)
    ]
    for broker in serving:
        if broker in leading.isr and broker not in cluster.shutting_down:
            staying = [member for member in leading.isr if member not in cluster.shutting_down]
            return Choice(broker, isr=staying, recovering=leading.recovering, told=serving)
    return None


def ownership(cluster: ObjectCluster, partition: Partition, leading: Leading, *, unclean: bool) -> Choice | None:
    online = [broker for broker in partition.replicas if cluster.is_online(broker, partition.name)]
    if not online:
        return None
    told = [broker for broker in online if broker == online[0] or broker != leading.leader]
    return Choice(online[0], isr=online, recovering=False, told=told)


STRATEGIES: dict[Election, Callable[..., Choice | None]] = {
    Election.OFFLINE: offline,
    Election.UNCLEAN: offline,
    Election.REASSIGNMENT: reassignment,
    Election.PREFERRED: preferred,
    Election.CONTROLLED_SHUTDOWN: controlled_shutdown,
    Election.OWNERSHIP: ownership,
}
