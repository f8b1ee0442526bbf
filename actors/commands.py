"""Commands of a controller instance, as methods.

Each queues a request behind the waiting events, and returns when it has been handled. Requests without a method of
their own are sent with `ask`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import anyio
import numpy as np

from kactl.errors import ActionTimedOut, BadRequest, NotController
from kactl.messages import arguments
from kactl.messages.admin import (
    ControllerRequest,
    ElectionRequested,
    ElectionResult,
    FeatureResult,
    FeatureUpdate,
    FeatureUpdatesRequested,
    PartitionsRequested,
    ReassignmentRequested,
    ReassignmentResult,
    ReassignmentsListed,
    ResignRequested,
    TopicCreationRequested,
    TopicDeletionRequested,
    UncleanElectionsEnabled,
    UndrainRequested,
)
from kactl.messages.arguments import AnyElection, AnyPartition
from kactl.messages.broker import ControlledShutdownRequested
from kactl.model import NO_LEADER, Assignment, TopicPartition, TopicRef
from kactl.state.cluster import Cluster
from kactl.telemetry.event_log import EventLog

from .controller import ControllerLoop

DEFAULT_TIMEOUT_MS: Final = 30_000


class Commands:
    """Commands that the controller handles as events.

    All of them raise NotController if this instance is not the active controller, or ceases to be before the request is
    handled.

    A partition can be given as `orders-0`, an election as `preferred`. BadRequest names an argument that cannot be
    used, its value and the allowed ones.
    """

    loop: ControllerLoop
    cluster: Cluster
    history: EventLog

    async def ask(self, request: ControllerRequest) -> Any:
        """Send any request of `kactl.messages.admin` or `kactl.messages.broker`, and return its result.

        Raises:
            NotController: another instance is the controller, or became it before the request was handled.
            InboxFull: too many events wait.
            ActorStopped: this instance is stopping.
            KactlError: the errors that the request documents.
        """
        return await self.loop.ref.ask(request)

    # -- the instance --------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Returns whether this instance is the controller, as far as it knows."""
        return self.loop.is_active

    async def wait_active(self, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> int:
        """Wait until this instance is the controller and has taken over. Returns the epoch.

        Raises:
            ActionTimedOut.
        """
        await self._until(
            lambda: self.is_active and self.loop.controllership.ready,
            "becoming the controller",
            timeout_ms,
            by_anyone=True,
        )
        return self.cluster.fence.epoch

    async def resign(self, *, expected_epoch: int | None = None) -> None:
        """Give up the controllership, if this instance holds it, and contest again like all others.

        Args:
            expected_epoch: resign only under this epoch; None: under any.

        Raises:
            StaleEpoch: the epoch is another; this instance has not resigned.
        """
        epoch = None if expected_epoch is None else arguments.whole(expected_epoch, "expected_epoch")
        await self.ask(ResignRequested(expected_epoch=epoch))

    async def set_unclean_leader_election(self, allowed: bool) -> None:
        """Set whether topics without a setting allow unclean elections.

        This is the instance's own setting. A setting for all brokers (`store.set_default_config`) takes precedence.
        """
        await self.ask(UncleanElectionsEnabled(arguments.flag(allowed, "allowed")))

    # -- topics --------------------------------------------------------------------------------------------------------

    async def create_topic(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignment: Mapping[int, Iterable[int]] | None = None,
        config: Mapping[str, str] | None = None,
        dry_run: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> TopicRef:
        """Create a topic, and wait until all of its partitions have a leader.

        Args:
            assignment: replicas by partition from 0 on, in place of `partitions` and `replication_factor`.
            timeout_ms: 0 does not wait.

        Raises:
            BadRequest, TopicExists: nothing was changed.
            ActionTimedOut: the topic exists, and some partition has no leader yet.
        """
        asked = TopicCreationRequested(
            arguments.text(topic, "topic"),
            None if partitions is None else arguments.whole(partitions, "partitions"),
            None if replication_factor is None else arguments.whole(replication_factor, "replication_factor"),
            None if assignment is None else _assignments(assignment),
            {} if config is None else arguments.settings(config),
            dry_run,
        )
        ref = cast(TopicRef, await self.ask(asked))
        if not dry_run and timeout_ms:
            await self._until(lambda: self._is_led(topic), f"electing leaders for topic {topic}", timeout_ms)
        return ref

    async def delete_topic(
        self, topic: str, *, dry_run: bool = False, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> TopicRef:
        """Delete a topic, and wait until nothing of it is left.

        Args:
            timeout_ms: 0 marks it for deletion and does not wait.

        Raises:
            NotFound, BeingDeleted, TopicDeletionDisabled: nothing was changed.
            ActionTimedOut: it is marked, and is deleted as soon as every broker with a replica is online.
        """
        ref = cast(TopicRef, await self.ask(TopicDeletionRequested(arguments.text(topic, "topic"), dry_run)))
        if not dry_run and timeout_ms:
            await self.wait_deleted(ref, timeout_ms=timeout_ms)
        return ref

    async def wait_deleted(self, ref: TopicRef, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        """Wait until nothing is left of a topic that was marked for deletion.

        Raises:
            ActionTimedOut: it is deleted as soon as every broker with a replica is online.
        """

        def gone() -> bool:
            known = self.cluster.table.topic(ref.name)
            return known is None or known.ref.id != ref.id

        await self._until(gone, f"deleting topic {ref.name}", timeout_ms)

    async def grow_topic(
        self,
        topic: str,
        count: int,
        *,
        assignment: Sequence[Iterable[int]] | None = None,
        dry_run: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        """Add partitions to a topic, and wait until all of them have a leader.

        Args:
            count: number of partitions afterwards.
            assignment: replicas of each new partition, in order; None to have them placed.
            timeout_ms: 0 does not wait.

        Raises:
            NotFound, BadRequest, BeingDeleted, ReassignmentRunning: nothing was changed.
            ActionTimedOut: the partitions exist, and some have no leader yet.
        """
        count = arguments.whole(count, "count")
        placed = (
            None
            if assignment is None
            else tuple(arguments.brokers(brokers, f"assignment[{index}]") for index, brokers in enumerate(assignment))
        )
        await self.ask(PartitionsRequested(arguments.text(topic, "topic"), count, placed, dry_run))
        if not dry_run and timeout_ms:
            await self._until(lambda: self._is_led(topic, count), f"electing leaders for topic {topic}", timeout_ms)

    # -- partitions ----------------------------------------------------------------------------------------------------

    async def elect(
        self,
        kind: AnyElection,
        partitions: Iterable[AnyPartition] | None = None,
        *,
        dry_run: bool = False,
    ) -> list[ElectionResult]:
        """Elect leaders on request. Returns one result for each partition.

            await controller.elect("preferred", ["orders-0", "orders-1"])

        Args:
            kind: ElectionKind, or its value: `preferred` or `unclean`.
            partitions: None for all that need it.

        Raises:
            BadRequest: `kind` or a partition's name cannot be used; nothing was changed.
        """
        named = None if partitions is None else arguments.partitions(partitions)
        asked = ElectionRequested(arguments.election(kind), named, dry_run)
        return cast(list[ElectionResult], await self.ask(asked))

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
        return cast(list[ReassignmentResult], await self.ask(ReassignmentRequested(wanted, dry_run)))

    async def cancel(
        self, partitions: Iterable[AnyPartition] | None = None, *, dry_run: bool = False
    ) -> list[ReassignmentResult]:
        """Cancel reassignments and restore the former replicas. Returns one result for each, in order. None: all."""
        named = await self.reassignments() if partitions is None else arguments.partitions(partitions)
        stopped = dict.fromkeys(named, None)
        return cast(list[ReassignmentResult], await self.ask(ReassignmentRequested(stopped, dry_run)))

    async def reassignments(self, partitions: Iterable[AnyPartition] | None = None) -> dict[TopicPartition, Assignment]:
        """Returns the running reassignments of some partitions, or of all, with their assignments."""
        named = None if partitions is None else arguments.partitions(partitions)
        return cast(dict[TopicPartition, Assignment], await self.ask(ReassignmentsListed(named)))

    # -- brokers and features ------------------------------------------------------------------------------------------

    async def drain(self, broker: int, *, dry_run: bool = False) -> list[TopicPartition]:
        """Move leadership away from a broker, as before it is stopped. Returns the partitions that it still leads.

        It is elected for no partition until it has registered anew or was restored.

        Raises:
            BrokerNotAvailable: it is not registered.
        """
        asked = ControlledShutdownRequested(arguments.whole(broker, "broker"), dry_run=dry_run)
        return cast(list[TopicPartition], await self.ask(asked))

    async def restore(self, broker: int) -> None:
        """Allow a broker that was drained and not stopped to lead and follow again.

        Raises:
            BrokerNotAvailable: it is not registered.
        """
        await self.ask(UndrainRequested(arguments.whole(broker, "broker")))

    async def update_features(self, updates: Iterable[FeatureUpdate], *, dry_run: bool = False) -> list[FeatureResult]:
        """Finalize levels of features. Returns one result for each, in order."""
        wanted = tuple(updates)
        for number, update in enumerate(wanted):
            if not isinstance(update, FeatureUpdate):
                raise BadRequest(f"updates[{number}]", f"{update!r} is not an update: give a kactl.FeatureUpdate")
        return cast(list[FeatureResult], await self.ask(FeatureUpdatesRequested(wanted, dry_run)))

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _is_led(self, topic: str, count: int = 1) -> bool:
        """Returns whether a topic has at least `count` partitions and each of them has a leader."""
        known = self.cluster.table.topic(topic)
        if known is None:
            return False
        row_numbers = self.cluster.table.rows_of(known)
        return len(row_numbers) >= count and bool(
            (self.cluster.table.rows(np.asarray(row_numbers)).leader != NO_LEADER).all()
        )

    async def _until(
        self, reached: Callable[[], bool], action: str, timeout_ms: int, *, by_anyone: bool = False
    ) -> None:
        """Wait until `reached` returns True; call it after every event.

        Args:
            by_anyone: whether it may become True while another instance is the controller.
        """
        try:
            with anyio.fail_after(timeout_ms / 1000):
                while True:
                    if not (by_anyone or self.is_active):
                        # The state in memory was dropped with the controllership.
                        raise NotController(self.loop.active_id)
                    if reached():
                        return
                    await self.history.changed()
        except TimeoutError:
            raise ActionTimedOut(action, timeout_ms) from None


def _assignments(given: Mapping[int, Iterable[int]]) -> dict[int, Assignment]:
    """Returns the requested replicas by partition."""
    if not isinstance(given, Mapping):
        raise BadRequest("assignment", f"{given!r} is not a mapping: give one such as {{0: [1, 2], 1: [2, 3]}}")
    return {
        arguments.whole(number, "assignment"): Assignment(arguments.brokers(replicas, f"assignment[{number}]"))
        for number, replicas in given.items()
    }
