"""Failure of one broker, as objects: from the event to the requests, stage by stage.

    find → elect → commit → apply → find → shrink → commit → apply → encode

Both machines take part, so commit and apply occur twice. The broker is already unregistered when the run begins.
"""

from collections.abc import Collection

from kactl.decide.machines.election import Election
from kactl.model import PartitionState

from . import machines
from .batch import ObjectBatch, Request
from .model import ObjectCluster, Partition


class BrokerFailure:
    """One failure being handled. Call the stages in the order of `run`, or call `run`."""

    def __init__(self, cluster: ObjectCluster, broker: int, *, unclean_topics: Collection[str] = ()) -> None:
        self.cluster = cluster
        self.broker = broker
        self.unclean_topics = unclean_topics
        self.batch = ObjectBatch(cluster)
        self.requests: list[Request] = []
        self.leaderless: list[Partition] = []
        self.hosted: list[Partition] = []
        self.plans: list[machines.Planned] = []
        self.kept: list[machines.Planned] = []
        self.untouched: list[Partition] = []
        self.any_elected = False

    def run(self) -> list[Request]:
        """Run all stages. Returns all requests, in the order in which they are sent."""
        self.find_leaderless()
        self.elect()
        self.commit()
        self.apply_elections()
        self.find_hosted()
        self.shrink()
        self.commit()
        self.apply_shrinks()
        return self.requests

    def find_leaderless(self) -> None:
        """Move partitions with an offline leader to OFFLINE. Partitions without a leader need an election."""
        machines.move_partitions(self.cluster.with_offline_leader(), PartitionState.OFFLINE)
        self.leaderless = self.cluster.waiting_for_a_leader()

    def elect(self) -> None:
        self.plans, _ = machines.plan_online(
            self.cluster, self.leaderless, Election.OFFLINE, unclean_topics=self.unclean_topics
        )

    def commit(self) -> None:
        self.kept = machines.commit(self.cluster, self.plans)

    def apply_elections(self) -> None:
        # First leaders are not elections.
        self.any_elected = any(not plan.is_new for plan in self.kept)
        machines.apply_online(self.batch, self.kept)
        self.requests += self.batch.flush()

    def find_hosted(self) -> None:
        self.hosted = [
            partition
            for partition in self.cluster.with_replica_on([self.broker])
            if not self.cluster.is_queued(partition)
        ]

    def shrink(self) -> None:
        may_go = machines.begin_offline(self.batch, self.hosted, self.broker)
        self.plans, self.untouched = machines.plan_shrink(self.cluster, may_go, self.broker)

    def apply_shrinks(self) -> None:
        machines.apply_shrink(self.batch, self.kept, self.untouched, self.broker)
        self.requests += self.batch.flush()
        if not self.hosted and not self.any_elected:
            # No other request would announce it.
            self.batch.update_metadata(self.cluster.brokers)
            self.requests += self.batch.flush()


def broker_failed(cluster: ObjectCluster, broker: int, *, unclean_topics: Collection[str] = ()) -> list[Request]:
    """Remove the broker and handle the failure, without deletions. Returns the requests in sending order."""
    cluster.brokers.pop(broker, None)
    cluster.shutting_down.discard(broker)
    cluster.offline_dirs.pop(broker, None)
    return BrokerFailure(cluster, broker, unclean_topics=unclean_topics).run()
