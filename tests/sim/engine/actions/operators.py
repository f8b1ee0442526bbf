"""Requests of operators about partitions, brokers and the controllership."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kactl.decide.messages.admin import (
    ApiPartitionReassignment,
    ElectionKind,
    ReplicaLeaderElection,
    ResignController,
    UndrainBroker,
)
from kactl.decide.messages.broker import ControlledShutdown
from kactl.model import TopicPartition
from tests.sim.engine import selectors
from tests.sim.engine.cluster import SimulatedCluster
from tests.sim.engine.selectors import Skipped

from .tasks import ask, in_store

Args = Mapping[str, Any]
Targets = dict[TopicPartition, tuple[int, ...] | None]


def _partitions(cluster: SimulatedCluster, names: Sequence[str]) -> list[TopicPartition]:
    return list(dict.fromkeys(selectors.partition(cluster, name) for name in names))


def _text(names: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, names))


def elect(cluster: SimulatedCluster, args: Args) -> None:
    """`kind`: preferred or unclean; `partitions`, all if it is missing; `to`."""
    names = _partitions(cluster, args["partitions"]) if "partitions" in args else None
    kind = ElectionKind(args["kind"])
    request = ReplicaLeaderElection(kind, None if names is None else tuple(names))
    ask(cluster, args["to"], request, operation=f"elect {kind.value}", about=_text(names or []))


def elect_stored(cluster: SimulatedCluster, args: Args) -> None:
    """`partitions`: leave a request for preferred elections in the store."""
    names = [*_partitions(cluster, args["partitions"]), TopicPartition("nothing", 0)]
    in_store(cluster, "request elections", cluster.operator_store.request_preferred_election(names))


def _asked(cluster: SimulatedCluster, targets: Targets) -> int:
    """Record a request for reassignments. Returns its number."""
    number = next(cluster.call_numbers)
    told = {str(name): None if replicas is None else list(replicas) for name, replicas in targets.items()}
    cluster.reassigned |= {name.topic for name in targets}
    cluster.history.record("reassign.asked", request=number, targets=told)
    return number


def _reassign(cluster: SimulatedCluster, to: str, targets: Targets, *, operation: str) -> None:
    selectors.controller(cluster, to)
    number = _asked(cluster, targets)

    def answered(results: Any) -> None:
        if isinstance(results, list):
            errors = {str(name): result.error.name for name, result in zip(targets, results, strict=True)}
            cluster.history.record("reassign.answered", request=number, errors=errors)

    ask(cluster, to, ApiPartitionReassignment(targets), operation=operation, about=_text(targets), then=answered)


def reassign(cluster: SimulatedCluster, args: Args) -> None:
    """`targets`: replicas by partition; `to`."""
    wanted = sorted(args["targets"].items())
    targets: Targets = {selectors.partition(cluster, name): tuple(replicas) for name, replicas in wanted}
    _reassign(cluster, args["to"], targets, operation="reassign")


def reassign_stored(cluster: SimulatedCluster, args: Args) -> None:
    """`targets`: leave a request for reassignments in the store."""
    wanted = sorted(args["targets"].items())  # a script that was written to a file has its keys in this order
    targets = {selectors.partition(cluster, name): tuple(replicas) for name, replicas in wanted}
    targets[TopicPartition("nothing", 0)] = (1, 2)
    _asked(cluster, {**targets})
    in_store(cluster, "request reassignments", cluster.operator_store.request_reassignment(targets))


def cancel(cluster: SimulatedCluster, args: Args) -> None:
    """`partition`: one that is being reassigned, as a number; `to`."""
    running = sorted(
        name for name, held in cluster.stored.assignments().items() if held.is_being_reassigned
    )  # fmt: skip
    if not running:
        raise Skipped("nothing is being reassigned")
    name = running[args["partition"] % len(running)]
    _reassign(cluster, args["to"], {name: None}, operation="cancel")


def evacuate(cluster: SimulatedCluster, args: Args) -> None:
    """`broker`, `turn`, `to`: replace a broker in all its partitions, as an operator does with one that is lost.

    Its successor is the next broker by id that is no replica of the partition, from the `turn`th on.
    """
    broker, every = selectors.broker(cluster, args["broker"]).id, sorted(cluster.fleet.brokers)
    turn = args.get("turn", 0) % len(every)
    targets: Targets = {}
    for name, held in sorted(cluster.stored.assignments().items()):
        others = [other for other in every[turn:] + every[:turn] if other not in held.target]
        if broker in held.target and others:
            targets[name] = tuple(others[0] if replica == broker else replica for replica in held.target)
    if not targets:
        raise Skipped(f"broker {broker} has no replica that another broker could take over")
    _reassign(cluster, args["to"], targets, operation="reassign")


def drain(cluster: SimulatedCluster, args: Args) -> None:
    """`broker`, `to`: move leadership away from a broker."""
    broker = selectors.broker(cluster, args["broker"]).id
    ask(cluster, args["to"], ControlledShutdown(broker), operation="drain", about=f"broker {broker}")


def undrain(cluster: SimulatedCluster, args: Args) -> None:
    """`broker`, `to`."""
    broker = selectors.broker(cluster, args["broker"]).id
    ask(cluster, args["to"], UndrainBroker(broker), operation="undrain", about=f"broker {broker}")


def resign(cluster: SimulatedCluster, args: Args) -> None:
    """`to`: ask an instance to resign."""
    ask(cluster, args["to"], ResignController(), operation="resign")


VERBS: Final = {
    "elect": elect, "elect stored": elect_stored, "reassign": reassign, "reassign stored": reassign_stored,
    "cancel": cancel, "evacuate": evacuate, "drain": drain, "undrain": undrain, "resign": resign,
}  # fmt: skip
