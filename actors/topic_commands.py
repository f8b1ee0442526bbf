"""Commands that concern topics, and waiting for their results."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import anyio
import numpy as np

from kactl.clock import Clock
from kactl.config.topic import check_overrides
from kactl.errors import ActionTimedOut, BadRequest, NotController, NotFound, StoreUnavailable
from kactl.machines.placement import topic_rules
from kactl.machines.topic_progress import missing_brokers, progress_of
from kactl.messages import arguments
from kactl.messages.admin import (
    ControllerRequest,
    PartitionsRequested,
    TopicCreationRequested,
    TopicDeletionRequested,
    TopicProgress,
)
from kactl.messages.topic_requests import ensure_request
from kactl.model import NO_LEADER, TopicRef
from kactl.state.cluster import Cluster
from kactl.stores.base import Store
from kactl.telemetry.event_log import EventLog

from .controller import ControllerLoop

DEFAULT_TIMEOUT_MS: Final = 30_000


class TopicCommands:
    """See `kactl.actors.commands.Commands`, of which this is a part."""

    loop: ControllerLoop
    cluster: Cluster
    history: EventLog
    store: Store
    clock: Clock

    async def ask(self, request: ControllerRequest) -> Any:
        """Send any request of `kactl.messages.admin` or `kactl.messages.broker`, and return its result.

        Raises:
            NotController: another instance is the controller, or became it before the request was handled.
            InboxFull: too many events wait.
            ActorStopped: this instance is stopping.
            KactlError: the errors that the request documents.
        """
        return await self.loop.ref.ask(request)

    @property
    def is_active(self) -> bool:
        """Returns whether this instance is the controller, as far as it knows."""
        return self.loop.is_active

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
        """Create a topic, and wait until each of its partitions has a leader that has acknowledged its order.

        Args:
            assignment: replicas by partition from 0 on, in place of `partitions` and `replication_factor`.
            timeout_ms: 0 does not wait.

        Raises:
            BadRequest, TopicExists: nothing was changed.
            ActionTimedOut: the topic exists, and some partitions have no such leader yet; the first are named.
        """
        asked = TopicCreationRequested(
            arguments.text(topic, "topic"),
            None if partitions is None else arguments.whole(partitions, "partitions"),
            None if replication_factor is None else arguments.whole(replication_factor, "replication_factor"),
            None if assignment is None else arguments.assignments(assignment),
            {} if config is None else arguments.settings(config),
            dry_run,
        )
        if dry_run or not timeout_ms:
            return cast(TopicRef, await self.ask(asked))
        with self._awaiting(topic, timeout_ms):
            ref = cast(TopicRef, await self.ask(asked))
            await self._led(topic, 1, timeout_ms)
        return ref

    async def ensure_topic(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignment: Mapping[int, Iterable[int]] | None = None,
        config: Mapping[str, str] | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> bool:
        """Create a topic unless it exists, and wait for its leaders as `create_topic` does.

        This also waits until the brokers of `assignment`, or enough others, can be used: they are registered, have
        linked, and are neither drained nor shutting down. A topic that exists is not changed, and its leaders only have
        to be registered.

        Args:
            partitions: 1 if neither this nor `assignment` is given.
            replication_factor: all live brokers, up to 3, if neither this nor `assignment` is given.

        Returns:
            whether this call has created it.

        Raises:
            TopicExists: with another number of partitions, or it is being deleted.
            BadRequest: nothing was changed.
            ActionTimedOut: see `create_topic`.
        """
        asked = ensure_request(topic, partitions, replication_factor, assignment, config)
        created, action = False, f"electing leaders for topic {topic}"
        until_ms = self.clock.monotonic_ms() + timeout_ms
        with self._awaiting(topic, timeout_ms):
            while True:
                progress = cast(TopicProgress, await self.ask(asked))
                created |= progress.created
                if not progress.waiting:
                    return created
                rest_ms = max(0, round(until_ms - self.clock.monotonic_ms()))
                if created or self.cluster.table.topic(topic) is not None:
                    await self._led(topic, asked.count, rest_ms)
                    return created
                await self._until(
                    lambda: not missing_brokers(self.cluster, asked),
                    action,
                    rest_ms,
                    reason=lambda: missing_brokers(self.cluster, asked),
                )

    async def topic_config(self, topic: str) -> dict[str, str]:
        """Returns the overrides of a topic.

        Raises:
            NotFound: there is no such topic.
            StoreUnavailable: they cannot be read.
        """
        name = arguments.text(topic, "topic")
        if self.is_active and self.cluster.table.topic(name) is None:
            raise NotFound("topic", name)
        config = (await self.store.topic_configs([name])).get(name)
        if config is None:
            raise StoreUnavailable(f"the overrides of topic {name} cannot be read")
        return config

    async def set_topic_config(self, topic: str, config: Mapping[str, str | None]) -> None:
        """Change overrides of a topic; None removes one. The others stay.

        Two concurrent calls may overwrite each other's changes of one topic.

        Raises:
            NotFound: there is no such topic.
            BadConfig: an override has an unknown name or an invalid value; nothing was changed.
            StoreError: the outcome is unknown.
        """
        await self.store.set_topic_config(topic, await self.changed_topic_config(topic, config))

    async def changed_topic_config(self, topic: str, config: Mapping[str, str | None]) -> dict[str, str]:
        """Returns the overrides that a topic would have after `set_topic_config`, which documents the errors."""
        if not isinstance(config, Mapping):
            raise BadRequest("config", f"{config!r} is not a mapping: give one such as {{'retention.ms': '1000'}}")
        changed = arguments.settings({key: value for key, value in config.items() if value is not None})
        removed = config.keys() - changed.keys()
        overrides = {**await self.topic_config(topic), **changed}
        after = {key: value for key, value in overrides.items() if key not in removed}
        check_overrides(after, topic_rules(self.cluster, self.loop.context.settings), changed=changed)
        return after

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

    async def wait_deleted(self, ref: TopicRef | str, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        """Wait until nothing is left of a topic that was marked for deletion, or of any topic of a name.

        Raises:
            BadRequest: `ref` is neither.
            ActionTimedOut: it is deleted as soon as every broker with a replica is online.
        """
        topic = arguments.topic(ref, "ref")

        def gone() -> bool:
            known = self.cluster.table.topic(topic.name)
            return known is None or (ref is topic and known.ref.id != topic.id)

        await self._until(gone, f"deleting topic {topic.name}", timeout_ms)

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
            await self._until(
                lambda: self._is_led(topic, count),
                f"electing leaders for topic {topic}",
                timeout_ms,
                reason=lambda: self._reasons(topic, count),
            )

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

    @contextlib.contextmanager
    def _awaiting(self, topic: str, timeout_ms: float) -> Iterator[None]:
        """Note which leaders of a topic acknowledge their orders."""
        self.cluster.awaited[topic] = self.clock.monotonic_ms() + timeout_ms
        try:
            yield
        finally:
            self.cluster.awaited.pop(topic, None)

    async def _led(self, topic: str, count: int, timeout_ms: int) -> None:
        """Wait until each partition of a topic has a leader that has acknowledged its order."""

        await self._until(
            lambda: not self._progress(topic, count).waiting,
            f"electing leaders for topic {topic}",
            timeout_ms,
            reason=lambda: self._reasons(topic, count),
        )

    def _progress(self, topic: str, count: int) -> TopicProgress:
        last_error = self.loop.context.channels.last_error
        return progress_of(self.cluster, topic, count=count, created=False, last_error=last_error)

    def _reasons(self, topic: str, count: int) -> str:
        return "; ".join(self._progress(topic, count).reasons)

    async def _until(
        self,
        reached: Callable[[], bool],
        action: str,
        timeout_ms: int,
        *,
        by_anyone: bool = False,
        reason: Callable[[], str] = lambda: "",
    ) -> None:
        """Wait until `reached` returns True; call it after every event.

        Args:
            by_anyone: whether it may become True while another instance is the controller.
            reason: returns what is missing, for the error.
        """
        try:
            with anyio.fail_after(timeout_ms / 1000):
                while True:
                    if not (by_anyone or self.is_active):
                        # The state in memory was dropped with the controllership.
                        raise NotController(self.loop.active_id, self.loop.active_address)
                    if reached():
                        return
                    await self.history.changed()
        except TimeoutError:
            raise ActionTimedOut(action, timeout_ms, reason()) from None
