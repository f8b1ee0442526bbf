"""Actions of brokers besides replication: shutdowns, failures of directories, and nonsense."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from kactl.decide.messages.admin import ResetReplica
from kactl.decide.messages.broker import AlterPartitionReceived, ControlledShutdown, IsrProposal
from kactl.model import TopicPartition, TopicRef
from kactl.model.errors import StoreError
from tests.sim.engine import selectors
from tests.sim.engine.brokers import ParticipantBroker, SimulatedBroker
from tests.sim.engine.brokers.handlers import HandlerFailure
from tests.sim.engine.brokers.process import RETRY_MS
from tests.sim.engine.cluster import SimulatedCluster
from tests.sim.engine.selectors import Skipped

from .tasks import ask, begin, during, in_store

Args = Mapping[str, Any]


def _running(cluster: SimulatedCluster, args: Args) -> SimulatedBroker:
    broker = selectors.broker(cluster, args["broker"])
    if not broker.is_running or not broker.has_process:
        raise Skipped(f"{broker.name} does not run")
    return broker


def _hosted(broker: SimulatedBroker, number: int) -> TopicPartition:
    names = sorted(broker.replicas())
    if not names:
        raise Skipped(f"broker {broker.id} hosts nothing")
    return names[number % len(names)]


def leave(cluster: SimulatedCluster, args: Args) -> None:
    """`broker`, `to`, `epoch_lag`: request a controlled shutdown, perhaps of an earlier registration, and stay."""
    broker = _running(cluster, args)
    ask(
        cluster,
        args["to"],
        ControlledShutdown(broker.id, broker.epoch - args.get("epoch_lag", 0)),
        operation="controlled shutdown",
        about=broker.name,
    )


def fail_directory(cluster: SimulatedCluster, args: Args) -> None:
    """`broker`, `replica`: a number; its directory fails, or has failed, and the broker notifies the controller."""
    broker = _running(cluster, args)
    names = sorted(broker.failed_directories().union(broker.replicas()))
    if not names:
        raise Skipped(f"broker {broker.id} hosts nothing")
    broker.fail_directory(names[args["replica"] % len(names)])
    in_store(cluster, "notify a failed directory", _notify(cluster, broker))


async def _notify(cluster: SimulatedCluster, broker: SimulatedBroker) -> None:
    """Notify the controller of a failed directory until the store has the notification, or the process has ended.

    The controller learns of the failure in no other way while the registration lasts. A restart mends the directory.

    Raises:
        StoreError: the process ended first.

    Source: ReplicaManager.handleLogDirFailure and KafkaZkClient.retryRequestUntilConnected, which repeats the request
    after each loss of the connection.
    """
    node = broker.node
    while True:
        try:
            return await cluster.operator_store.notify_log_dir(broker.id)
        except StoreError:
            await asyncio.sleep(RETRY_MS / 1000)
            if broker.node is not node or not broker.is_up:
                raise


def undeletable(cluster: SimulatedCluster, args: Args) -> None:
    """`broker`, `replica`: a number; its deletion fails until the broker restarts."""
    broker = _running(cluster, args)
    broker.make_undeletable(_hosted(broker, args["replica"]))


def fail_calls(cluster: SimulatedCluster, args: Args) -> None:
    """`broker`, `count`: the next calls of its application fail; participants only.

    `stays`: later calls for the same partitions fail as well.
    """
    broker = _running(cluster, args)
    if not isinstance(broker, ParticipantBroker):
        raise Skipped(f"{broker.name} has no application")
    broker.fail_calls(args["count"], stays=args.get("stays", True))


def fail_handler(cluster: SimulatedCluster, args: Args) -> None:
    """`broker`, `phase`, `what`, `for_ms`: the next call of a phase of its handlers fails, is slow, or hangs."""
    broker = _running(cluster, args)
    failure = HandlerFailure(args["phase"], args["what"], args.get("for_ms", 0.0))
    if not isinstance(broker, ParticipantBroker) or not broker.fail_handler(failure):
        raise Skipped(f"{broker.name} has no handlers")


def poison(cluster: SimulatedCluster, args: Args) -> None:
    """`topic`, `partition`: all calls of a `phase` of its handlers fail as `what` says, for a time `for_ms`."""
    name, failure = TopicPartition(args["topic"], args["partition"]), HandlerFailure(args["phase"], args["what"], 0.0)
    cluster.poisoned[name] = failure

    def end() -> None:
        cluster.poisoned.pop(name, None)

    during(cluster, "poison", str(name), args["for_ms"], end)


def reset_replica(cluster: SimulatedCluster, args: Args) -> None:
    """`replica`: a number among those whose handlers have failed; `to`."""
    failed = sorted((name, broker.id) for broker in cluster.fleet.running() for name in broker.failed_handlers())
    if not failed:
        raise Skipped("no handler has failed")
    name, broker = failed[args["replica"] % len(failed)]
    request = ResetReplica(name, broker)
    ask(cluster, args["to"], request, operation="reset replica", about=f"{name} on broker {broker}")


def producer_ids(cluster: SimulatedCluster, args: Args) -> None:
    """`broker`: reserve a block of producer ids."""
    begin(cluster, _running(cluster, args).allocate_producer_ids(), name="producer ids")


def nonsense(cluster: SimulatedCluster, args: Args) -> None:
    """`broker`, `replica`: a number; propose an `isr` that no leader would, with epochs off by `epoch_lag`.

    `recovering`: as a leader that still recovers; `twice`: in two proposals of one request.
    """
    broker = _running(cluster, args)
    if cluster.spec.brokers.kind == "participant":
        raise Skipped("participants send proposals of their own only")
    if not cluster.level.alter_partition:
        raise Skipped("leaders write their ISRs at this protocol level")
    name = _hosted(broker, args["replica"])
    replica = broker.replicas()[name]
    lag = args.get("epoch_lag", 0)
    isr = args["isr"]
    if lag <= 0 and args.get("version_lag", 0) <= 0 and broker.id in isr and min(isr) >= 0:
        raise Skipped("a leader could propose this, and would know that it was accepted")
    by_id = cluster.level.topic_ids
    proposal = IsrProposal(
        TopicRef("", replica.topic_id) if by_id else TopicRef(name.topic),
        name.partition,
        replica.leader_epoch - lag,
        tuple(isr),
        replica.partition_epoch - args.get("version_lag", 0),
        recovering=args.get("recovering", False),
    )
    proposals = (proposal,) * (2 if args.get("twice") else 1)
    request = AlterPartitionReceived(broker.id, broker.epoch, proposals, 2 if by_id else 1)
    ask(cluster, args["to"], request, operation="alter partition", about=str(name))


VERBS: Final = {
    "leave": leave, "fail directory": fail_directory, "undeletable": undeletable, "producer ids": producer_ids,
    "nonsense": nonsense, "fail calls": fail_calls, "fail handler": fail_handler,
    "poison": poison, "reset replica": reset_replica,
}  # fmt: skip
