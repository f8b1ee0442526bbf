"""What a controller instance can be asked for, as methods.

Each of them puts a request behind the events that wait, and answers when it has been handled to its end. What can be
asked for without a method of its own goes through `ask`.
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
from kactl.telemetry.event_log import History

from .controller import ControllerLoop

DEFAULT_TIMEOUT_MS: Final = 30_000


class Commands:
    """See the module.

    Whatever is asked of an instance that is not the controller, or ceases to be before it comes to it, raises
    NotController: ask the one that is.

    A partition can be given as `orders-0`, an election as `preferred`. BadRequest names an argument that cannot be
    used, its value and what is allowed.
    """

    loop: ControllerLoop
    cluster: Cluster
    history: History

    async def ask(self, request: ControllerRequest) -> Any:
        """Hand in any request of `kactl.messages.admin` or `kactl.messages.broker`, and wait for its answer.

        Raises:
            NotController: another instance is the controller, or became it before the request was handled.
            InboxFull: too much waits already.
            ActorStopped: this instance is stopping.
            KactlError: what the request itself says that it may be refused with.
        """
        return await self.loop.ref.ask(request)

    # -- the instance --------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether this instance is the controller, as far as it knows."""
        return self.loop.is_active

    async def wait_active(self, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> int:
        """Wait until this instance is the controller and has taken over; the epoch.

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
        """Give up the controllership, if it is ours, and contest again like everybody else.

        Args:
            expected_epoch: only if this is our epoch; None for whichever it is.

        Raises:
            StaleEpoch: it is another; nothing was given up.
        """
        epoch = None if expected_epoch is None else arguments.whole(expected_epoch, "expected_epoch")
        await self.ask(ResignRequested(expected_epoch=epoch))

    async def set_unclean_leader_election(self, allowed: bool) -> None:
        """Whether topics that say nothing of it allow unclean elections from now on.

        This is the instance's own setting. What `store.set_default_config` says for all brokers wins over it.
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
            ActionTimedOut: it is marked, and goes as soon as every broker that holds a replica is there.
        """
        ref = cast(TopicRef, await self.ask(TopicDeletionRequested(arguments.text(topic, "topic"), dry_run)))
        if not dry_run and timeout_ms:
            await self.wait_deleted(ref, timeout_ms=timeout_ms)
        return ref

    async def wait_deleted(self, ref: TopicRef, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        """Wait until nothing is left of a topic that was marked for deletion.

        Raises:
            ActionTimedOut: it goes as soon as every broker that holds a replica is there.
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
            count: how many partitions it is to have then.
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
            else tuple(arguments.brokers(held, f"assignment[{at}]") for at, held in enumerate(assignment))
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
        """Elect leaders on request; one result for each partition.

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
        """Begin to move partitions to other replicas; one result for each, in order.

        That a partition was accepted does not say that it has moved: `reassignments` lists it until then.

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
        """Stop moving partitions and go back to the replicas of before; one result for each, in order. None: all."""
        named = await self.reassignments() if partitions is None else arguments.partitions(partitions)
        stopped = dict.fromkeys(named, None)
        return cast(list[ReassignmentResult], await self.ask(ReassignmentRequested(stopped, dry_run)))

    async def reassignments(self, partitions: Iterable[AnyPartition] | None = None) -> dict[TopicPartition, Assignment]:
        """Which partitions are being moved, and from where to where; of some, or of all."""
        named = None if partitions is None else arguments.partitions(partitions)
        return cast(dict[TopicPartition, Assignment], await self.ask(ReassignmentsListed(named)))

    # -- brokers and features ------------------------------------------------------------------------------------------

    async def drain(self, broker: int, *, dry_run: bool = False) -> list[TopicPartition]:
        """Lead a broker's partitions elsewhere, as before it is stopped; those that it still leads, by name.

        It is given no leadership until it has registered anew or was restored.

        Raises:
            BrokerNotAvailable: it is not registered.
        """
        asked = ControlledShutdownRequested(arguments.whole(broker, "broker"), dry_run=dry_run)
        return cast(list[TopicPartition], await self.ask(asked))

    async def restore(self, broker: int) -> None:
        """Let a broker that was drained, and was not stopped after all, lead and follow again.

        Raises:
            BrokerNotAvailable: it is not registered.
        """
        await self.ask(UndrainRequested(arguments.whole(broker, "broker")))

    async def update_features(self, updates: Iterable[FeatureUpdate], *, dry_run: bool = False) -> list[FeatureResult]:
        """Finalize levels of features; one result for each, in order."""
        wanted = tuple(updates)
        for number, update in enumerate(wanted):
            if not isinstance(update, FeatureUpdate):
                raise BadRequest(f"updates[{number}]", f"{update!r} is not an update: give a kactl.FeatureUpdate")
        return cast(list[FeatureResult], await self.ask(FeatureUpdatesRequested(wanted, dry_run)))

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _is_led(self, topic: str, count: int = 1) -> bool:
        """Whether a topic has so many partitions at least, and each of them a leader."""
        known = self.cluster.table.topic(topic)
        if known is None:
            return False
        at = self.cluster.table.rows_of(known)
        return len(at) >= count and bool((self.cluster.table.rows(np.asarray(at)).leader != NO_LEADER).all())

    async def _until(self, reached: Callable[[], bool], what: str, timeout_ms: int, *, by_anyone: bool = False) -> None:
        """Wait until something is so, looking whenever something has happened.

        Args:
            by_anyone: whether it can come to be so while another instance is the controller.
        """
        try:
            with anyio.fail_after(timeout_ms / 1000):
                while True:
                    if not (by_anyone or self.is_active):
                        # What we knew is gone along with the controllership, and says nothing any more.
                        raise NotController(self.loop.active_id)
                    if reached():
                        return
                    await self.history.changed()
        except TimeoutError:
            raise ActionTimedOut(what, timeout_ms) from None


def _assignments(given: Mapping[int, Iterable[int]]) -> dict[int, Assignment]:
    """Replicas by partition, as they are asked for."""
    if not isinstance(given, Mapping):
        raise BadRequest("assignment", f"{given!r} is not a mapping: give one such as {{0: [1, 2], 1: [2, 3]}}")
    return {
        arguments.whole(number, "assignment"): Assignment(arguments.brokers(replicas, f"assignment[{number}]"))
        for number, replicas in given.items()
    }
