"""Commands of a controller instance, as methods.

Each queues a request behind the waiting events, and returns when it has been handled. Requests without a method of
their own are sent with `ask`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from kactl.decide.messages import arguments
from kactl.decide.messages.admin import (
    ApiPartitionReassignment,
    ElectionResult,
    EnableUncleanElections,
    FeatureResult,
    FeatureUpdate,
    ListPartitionReassignments,
    ReassignmentResult,
    ReleaseController,
    ReplicaLeaderElection,
    ResetReplica,
    ResignController,
    UndrainBroker,
    UpdateFeatures,
)
from kactl.decide.messages.arguments import AnyElection, AnyPartition
from kactl.decide.messages.broker import ControlledShutdown
from kactl.decide.state.replica_reports import ReplicaReport
from kactl.model import NO_EPOCH, Assignment, TopicPartition
from kactl.model.errors import BadRequest

from .topic_commands import DEFAULT_TIMEOUT_MS, TopicCommands


class Commands(TopicCommands):
    """Commands that the controller handles as events.

    All of them raise NotController if this instance is not the active controller, or ceases to be before the request is
    handled.

    A partition can be given as `orders-0`, an election as `preferred`. BadRequest names an argument that cannot be
    used, its value and the allowed ones.
    """

    # -- the instance --------------------------------------------------------------------------------------------------

    async def wait_active(self, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> int:
        """Wait until this instance is the controller and has taken over. Returns the epoch.

        Raises:
            ActionTimedOut.
        """
        await self.answers.until(
            lambda: self.is_active and self.loop.controllership.ready,
            "becoming the controller",
            timeout_ms,
            by_anyone=True,
        )
        return self.cluster.fence.epoch

    async def resign(
        self,
        *,
        expected_epoch: int | None = None,
        hold: bool = False,
        until_ms: int | None = None,
        by: str = "",
        reason: str = "",
    ) -> None:
        """Give up the controllership, if this instance holds it, and contest again like all others.

        With `hold`, this instance leaves the controllership to others until `release` or `until_ms`, also after a
        restart: it contests only after three seconds without a controller. The hold is stored before it resigns.

        Args:
            expected_epoch: resign only under this epoch; None: under any.
            until_ms: end of the hold, a Unix time in the future; None for no limit.
            by, reason: of the hold, for operators.

        Raises:
            BadRequest: an argument cannot be used; this instance has not resigned.
            StaleEpoch: the epoch is another; this instance has not resigned.
            StoreError: the hold cannot be stored; this instance has not resigned.
        """
        epoch = None if expected_epoch is None else arguments.whole(expected_epoch, "expected_epoch")
        if until_ms is not None:
            if not hold:
                raise BadRequest("until_ms", "is the end of a hold: set hold as well")
            arguments.until(until_ms)
        await self.ask(
            ResignController(
                expected_epoch=epoch,
                hold=arguments.flag(hold, "hold"),
                until_ms=until_ms,
                by=arguments.text(by, "by"),
                reason=arguments.text(reason, "reason"),
            )
        )

    async def release(self, controller_id: int) -> bool:
        """End the hold of an instance that has resigned. Returns whether it was held. Sent to the active instance."""
        return cast(bool, await self.ask(ReleaseController(arguments.whole(controller_id, "controller_id"))))

    async def set_unclean_leader_election(self, allowed: bool) -> None:
        """Set whether topics without a setting allow unclean elections.

        This is the instance's own setting. A setting for all brokers (`store.set_default_config`) takes precedence.
        """
        await self.ask(EnableUncleanElections(arguments.flag(allowed, "allowed")))

    # -- partitions ----------------------------------------------------------------------------------------------------

    async def elect(
        self,
        kind: AnyElection,
        partitions: Iterable[AnyPartition] | None = None,
        *,
        dry_run: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> list[ElectionResult]:
        """Elect leaders on request, and wait until the brokers know them. Returns one result for each partition.

            await controller.elect("preferred", ["orders-0", "orders-1"])

        Args:
            kind: ElectionKind, or its value: `preferred` or `unclean`.
            partitions: None for all that need it.
            timeout_ms: of the wait for the brokers that can be reached. Leaders that they have not acknowledged by then
                get REQUEST_TIMED_OUT as their results, and stay elected. 0 does not wait.

        Raises:
            BadRequest: `kind` or a partition's name cannot be used; nothing was changed.
        """
        named = None if partitions is None else arguments.partitions(partitions)
        asked = ReplicaLeaderElection(arguments.election(kind), named, dry_run)
        results = cast(list[ElectionResult], await self.ask(asked))
        return results if dry_run or not timeout_ms else await self.answers.elected(results, timeout_ms)

    async def reassign(
        self, targets: Mapping[TopicPartition, Iterable[int]] | Mapping[str, Iterable[int]], *, dry_run: bool = False
    ) -> list[ReassignmentResult]:
        """Begin to move partitions to other replicas. Returns one result for each, in order.

        An accepted partition has not moved yet: `reassignments` lists it until then.

        Raises:
            BadRequest: a partition's name or a broker id cannot be used; nothing was changed.
        """
        wanted = {
            name: arguments.brokers(replicas, f"targets[{name}]")
            for name, replicas in arguments.by_partition(cast(Mapping[AnyPartition, Any], targets), "targets").items()
        }
        return cast(list[ReassignmentResult], await self.ask(ApiPartitionReassignment(wanted, dry_run)))

    async def cancel(
        self, partitions: Iterable[AnyPartition] | None = None, *, dry_run: bool = False
    ) -> list[ReassignmentResult]:
        """Cancel reassignments and restore the former replicas. Returns one result for each, in order. None: all."""
        named = await self.reassignments() if partitions is None else arguments.partitions(partitions)
        stopped = dict.fromkeys(named, None)
        return cast(list[ReassignmentResult], await self.ask(ApiPartitionReassignment(stopped, dry_run)))

    async def reassignments(self, partitions: Iterable[AnyPartition] | None = None) -> dict[TopicPartition, Assignment]:
        """Returns the running reassignments of some partitions, or of all, with their assignments."""
        named = None if partitions is None else arguments.partitions(partitions)
        return cast(dict[TopicPartition, Assignment], await self.ask(ListPartitionReassignments(named)))

    # -- brokers and features ------------------------------------------------------------------------------------------

    async def drain(
        self,
        broker: int,
        *,
        until_ms: int | None = None,
        until_restart: bool = False,
        by: str = "",
        reason: str = "",
        dry_run: bool = False,
    ) -> list[TopicPartition]:
        """Move leadership away from a broker, as before it is stopped. Returns the partitions that it still leads.

        It leads nothing that another broker can lead, and is in no ISR with other members, until `restore` or
        `until_ms`. That is stored, and holds under later controllers and after restarts of the broker. The drain of a
        drained broker is replaced.

        Args:
            until_ms: a Unix time in the future; None for no limit.
            until_restart: the drain ends when the broker has registered anew.
            by, reason: for operators.

        Raises:
            BadRequest: `until_ms` has passed, or an argument cannot be used; nothing was changed.
            BrokerNotAvailable: it is not registered.
        """
        if until_ms is not None:
            arguments.until(until_ms)
        asked = ControlledShutdown(
            arguments.whole(broker, "broker"), NO_EPOCH, dry_run, until_ms, until_restart, by, reason
        )
        return cast(list[TopicPartition], await self.ask(asked))

    async def restore(self, broker: int, *, by: str = "") -> bool:
        """Allow a drained broker to lead and follow again. Returns whether it was drained.

        Raises:
            BrokerNotAvailable: it is neither registered nor drained.
        """
        return cast(bool, await self.ask(UndrainBroker(arguments.whole(broker, "broker"), by=by)))

    async def reset_replica(self, partition: AnyPartition, broker: int, *, dry_run: bool = False) -> ReplicaReport:
        """Let a participant call a handler again now that has failed. Returns the last failure.

        The participant receives a request and reports the replica as ready; `replica_status` shows it until then.

        Raises:
            BadRequest: `partition` cannot name one, or the broker is no participant.
            NotFound: there is no such partition, or the broker has no replica of it.
            BrokerNotAvailable: the broker is not registered.
            NothingToReset: the handler has no failure that a reset ends.
        """
        name, id_ = arguments.partition(partition, "partition"), arguments.whole(broker, "broker")
        asked = ResetReplica(name, id_, arguments.flag(dry_run, "dry_run"))
        return cast(ReplicaReport, await self.ask(asked))

    async def update_features(self, updates: Iterable[FeatureUpdate], *, dry_run: bool = False) -> list[FeatureResult]:
        """Finalize levels of features. Returns one result for each, in order."""
        wanted = tuple(updates)
        for number, update in enumerate(wanted):
            if not isinstance(update, FeatureUpdate):
                raise BadRequest(f"updates[{number}]", f"{update!r} is not an update: give a kactl.FeatureUpdate")
        return cast(list[FeatureResult], await self.ask(UpdateFeatures(wanted, dry_run)))
