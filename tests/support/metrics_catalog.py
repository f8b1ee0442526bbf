"""Names of all metrics: those of OpenTelemetry, of Prometheus, and of Kafka's controller in JMX."""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from kactl.telemetry.metrics import COUNTERS, GAUGES, HISTOGRAMS

Kind = Literal["gauge", "counter", "histogram"]
_CONTROLLER: Final = "kafka.controller:type=KafkaController,name="
_STATS: Final = "kafka.controller:type=ControllerStats,name="
_EVENTS: Final = "kafka.controller:type=ControllerEventManager,name="
_CHANNELS: Final = "kafka.controller:type=ControllerChannelManager,name="
_REPLICAS: Final = "kafka.server:type=ReplicaManager,name="
_SESSION: Final = "kafka.server:type=SessionExpireListener,name="

# MBeans of Kafka with the same meaning, those of its ZooKeeper mode where both modes have one. Those of brokers count
# their own partitions; kactl's count all partitions of the cluster, as the controller knows them.
JMX: Final = {
    "kafka.controller.active.count": f"{_CONTROLLER}ActiveControllerCount",
    "kafka.controller.state": f"{_CONTROLLER}ControllerState",
    "kafka.controller.topic.count": f"{_CONTROLLER}GlobalTopicCount",
    "kafka.controller.partition.count": f"{_CONTROLLER}GlobalPartitionCount",
    "kafka.partition.offline": f"{_CONTROLLER}OfflinePartitionsCount",
    "kafka.partition.underReplicated": f"{_REPLICAS}UnderReplicatedPartitions",
    "kafka.controller.partition.under_min_isr": f"{_REPLICAS}UnderMinIsrPartitionCount",
    "kafka.controller.partition.at_min_isr": f"{_REPLICAS}AtMinIsrPartitionCount",
    "kafka.controller.partition.reassigning": f"{_REPLICAS}ReassigningPartitions",
    "kafka.controller.partition.preferred_imbalance": f"{_CONTROLLER}PreferredReplicaImbalanceCount",
    "kafka.controller.topic.deletion.pending": f"{_CONTROLLER}TopicsToDeleteCount",
    "kafka.controller.topic.deletion.ineligible": f"{_CONTROLLER}TopicsIneligibleToDeleteCount",
    "kafka.controller.replica.deletion.pending": f"{_CONTROLLER}ReplicasToDeleteCount",
    "kafka.controller.replica.deletion.ineligible": f"{_CONTROLLER}ReplicasIneligibleToDeleteCount",
    "kafka.leader.count": f"{_REPLICAS}LeaderCount",
    "kafka.partition.count": f"{_REPLICAS}PartitionCount",
    "kafka.controller.broker.active": f"{_CONTROLLER}ActiveBrokerCount",
    "kafka.controller.broker.fenced": f"{_CONTROLLER}FencedBrokerCount",
    "kafka.controller.event.queue.size": f"{_EVENTS}EventQueueSize",
    "kafka.controller.event.queue.duration": f"{_EVENTS}EventQueueTimeMs",
    "kafka.controller.event.process.duration": f"{_STATS}LeaderElectionRateAndTimeMs, {_STATS}*RateAndTimeMs",
    "kafka.controller.broker.queue.size": f"{_CHANNELS}QueueSize,broker-id=*",
    "kafka.controller.broker.queue.duration": f"{_CHANNELS}RequestRateAndQueueTimeMs,broker-id=*",
    "kafka.leaderElection.unclean.count": f"{_STATS}UncleanLeaderElectionsPerSec",
    "kafka.isr.operation.count": f"{_REPLICAS}IsrShrinksPerSec, {_REPLICAS}IsrExpandsPerSec, "
    f"{_REPLICAS}FailedIsrUpdatesPerSec",
    "kactl.event.started": f"{_CONTROLLER}EventQueueOperationsStartedCount",
    "kactl.event.timed_out": f"{_CONTROLLER}EventQueueOperationsTimedOutCount",
    "kactl.controller.change.count": f"{_CONTROLLER}NewActiveControllersCount",
    "kactl.store.session.state": f"{_SESSION}SessionState",
    "kactl.store.session.transition.count": f"{_SESSION}ZooKeeper*PerSec",
    "kactl.store.request.duration": "kafka.server:type=ZooKeeperClientMetrics,name=ZooKeeperRequestLatencyMs",
}


class Metric(NamedTuple):
    """One metric.

    Attributes:
        name: in OpenTelemetry.
        prometheus: in Prometheus; of a histogram without `_bucket`, `_sum` and `_count`.
        jmx: the MBean with the same meaning; empty if there is none.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str
    prometheus: str
    jmx: str


# Made in other places than `kactl.telemetry.metrics`: the links and leases of participants.
_OTHERS: Final[tuple[tuple[Kind, str, str, str], ...]] = (
    ("counter", "kactl.network.bytes", "By", "bytes of links with participants, by lane and direction"),
    ("counter", "kactl.network.messages", "", "messages received from participants, by lane"),
    ("gauge", "kactl.network.links", "", "open links, by role of the peer"),
    ("counter", "kactl.network.handshake.failures", "", "connections without a complete handshake, by reason"),
    ("counter", "kactl.network.violations", "", "links that were closed because the peer broke the protocol"),
    ("counter", "kactl.network.connects", "", "links that this process has opened, reconnections included"),
    ("histogram", "kactl.network.heartbeat.round_trip_ms", "ms", "from a heartbeat of a participant to its answer"),
    (
        "histogram",
        "kactl.participant.lease.late_ms",
        "ms",
        "from the end of a lease to its detection by the event loop",
    ),
    ("gauge", "kactl.network.queued", "By", "bytes that wait in the links of this process, by lane"),
)


def metrics() -> Iterator[Metric]:
    """Yield all metrics, those with a name of Kafka first."""
    made: list[tuple[Kind, str, str, str]] = [("gauge", *each) for each in GAUGES]
    made += [("counter", *each) for each in COUNTERS]
    made += [("histogram", *each) for each in HISTOGRAMS]
    for kind, name, unit, meaning in sorted(
        (*made, *_OTHERS), key=lambda each: (not each[1].startswith("kafka"), each[1])
    ):
        yield Metric(name, kind, unit, meaning, prometheus_name(name, unit, kind), JMX.get(name, ""))


def prometheus_name(name: str, unit: str, kind: Kind) -> str:
    """Returns the name that OpenTelemetry's exporter gives a metric."""
    result = name.lower().replace(".", "_")
    suffix = {"s": "_seconds", "By": "_bytes", "ms": "_milliseconds"}.get(unit, "")
    if not result.endswith(suffix):
        result += suffix
    return f"{result}_total" if kind == "counter" else result
