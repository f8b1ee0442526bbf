"""Commands that concern topics, and waiting for their results."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Any, Final, TypeVar, cast

from kactl.config.topic import check_overrides
from kactl.decide.machines.placement import topic_rules
from kactl.decide.machines.topic_progress import missing_brokers, progress_of
from kactl.decide.messages import arguments
from kactl.decide.messages.admin import (
    AddPartitions,
    ControllerRequest,
    CreateTopic,
    DeleteTopic,
    TopicProgress,
)
from kactl.decide.messages.topic_requests import WaitFor, checked_wait, ensure_request, overrides
from kactl.decide.state.cluster import Cluster
from kactl.model import STANDBY, TopicKind, TopicRef
from kactl.model.errors import BadRequest, NotFound, StoreUnavailable
from kactl.runtime.clock import Clock
from kactl.runtime.threads import run_in_thread
from kactl.stores.base import Store

from .answers import Answers
from .controller import ControllerLoop

S = TypeVar("S")
T = TypeVar("T")

DEFAULT_TIMEOUT_MS: Final = 30_000
# Partitions of an assignment that are converted in one step of the event loop; a microsecond or two each.
CONVERTED_AT_ONCE_MAX: Final = 1_000


class TopicCommands:
    """See `kactl.actors.commands.Commands`, of which this is a part."""

    loop: ControllerLoop
    answers: Answers
    cluster: Cluster
    store: Store
    clock: Clock

    async def ask(self, request: ControllerRequest) -> Any:
        """Send any request of `kactl.decide.messages.admin` or `kactl.decide.messages.broker`, and return its result.

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
        kind: TopicKind = "replicated",
        standby: int | None = None,
        dry_run: bool = False,
        wait: WaitFor = "led",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> TopicRef:
        """Create a topic, and wait until it can be used.

            await controller.create_topic("jobs", partitions=12, replication_factor=3, wait="ready")

        Args:
            assignment: replicas by partition from 0 on, in place of `partitions` and `replication_factor`.
            kind: `ownership` for programs that keep no records in kactl: any participant may own any partition; see
                docs/promises.md. It has neither `replication_factor` nor `assignment`.
            standby: how many participants follow each partition of an ownership topic, ready to own it.
            wait: `stored`: the topic is stored, and the controller knows it. `led`: each partition has a leader that
                has acknowledged its order, and every broker that can be reached knows the topic. `ready`: each leader
                serves, too; see `wait_ready`.
            timeout_ms: 0 does not wait.

        Raises:
            BadRequest, TopicExists: nothing was changed.
            ActionTimedOut: the topic exists, and is not complete yet; `partitions` of the error has what each partition
                waits for that is not complete.
        """
        wait = checked_wait(wait)
        placed = None if assignment is None else await _off_loop(arguments.assignments, assignment)
        asked = CreateTopic(
            arguments.text(topic, "topic"),
            None if partitions is None else arguments.whole(partitions, "partitions"),
            None if replication_factor is None else arguments.whole(replication_factor, "replication_factor"),
            placed,
            overrides(config, kind, standby),
            dry_run,
            kind,
        )
        ref = cast(TopicRef, await self.ask(asked))
        if not dry_run and timeout_ms:
            count = len(asked.assignment) if asked.assignment is not None else asked.partitions or 1
            await self._complete(topic, count, timeout_ms, wait)
        return ref

    async def ensure_topic(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignment: Mapping[int, Iterable[int]] | None = None,
        config: Mapping[str, str] | None = None,
        kind: TopicKind = "replicated",
        standby: int | None = None,
        wait: WaitFor = "stored",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> bool:
        """Create a topic unless it exists, and wait until it is stored and the controller knows it.

        This also waits until the brokers of `assignment`, or enough others, can be used: they are registered, have
        linked, and are neither drained nor shutting down. A topic that exists is not changed. An ownership topic gets
        the partitions that it lacks.

        Args:
            partitions: 1 if neither this nor `assignment` is given.
            replication_factor: all live brokers, up to 3, if neither this nor `assignment` is given.
            wait: see `create_topic`. For `led`, the leaders of a topic that exists only have to be registered. One
                partition that no replica can serve does not delay a program that waits for neither `led` nor `ready`.

        Returns:
            whether this call has created it.

        Raises:
            TopicExists: of another kind, or with another number of partitions, or it is being deleted. More partitions
                than requested are no error for an ownership topic: the controller logs a warning.
            BadRequest: nothing was changed.
            ActionTimedOut: see `create_topic`; or too few brokers can be used, and the topic does not exist.
        """
        asked = ensure_request(topic, partitions, replication_factor, assignment, config, wait, kind, standby)
        created, action = False, f"{'electing leaders for' if asked.led else 'creating'} topic {topic}"
        until_ms = self.clock.monotonic_ms() + timeout_ms
        while True:
            progress = cast(TopicProgress, await self.ask(asked))
            created |= progress.created
            if not progress.waiting:
                return created
            rest_ms = max(0, round(until_ms - self.clock.monotonic_ms()))
            if created or self.cluster.table.topic(topic) is not None:
                await self._complete(topic, asked.count, rest_ms, checked_wait(wait))
                return created
            await self.answers.until(
                lambda: not missing_brokers(self.cluster, asked),
                action,
                rest_ms,
                reason=lambda: missing_brokers(self.cluster, asked),
            )

    async def wait_ready(self, topic: str, *, partitions: int = 1, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        """Wait until every partition of a topic has a leader that serves, and every broker knows that.

        A leader with a handler serves once its `lead` is called: after its `prepare`, under a lease, and after the
        release of the leader before. One with a listener serves once `became_leader` has returned, and a broker of
        Kafka once it has acknowledged its order. The topic does not have to exist yet.

        Args:
            partitions: the number that the topic has at least, where it has just been created or is growing.

        Raises:
            ActionTimedOut: with the first partitions that have no such leader, and what they wait for.
        """
        name, count = arguments.text(topic, "topic"), arguments.whole(partitions, "partitions")
        await self._complete(name, count, timeout_ms, "ready")

    async def _complete(self, topic: str, count: int, timeout_ms: int, wait: WaitFor) -> None:
        """Raises ActionTimedOut or NotController unless a topic is as far as requested in time; see `Answers`."""
        if wait == "stored":

            def unread() -> str:
                return "; ".join(progress_of(self.cluster, topic, count=count, led=False).reasons)

            await self.answers.until(lambda: not unread(), f"reading topic {topic}", timeout_ms, reason=unread)
            return
        for error in (await self.answers.complete({topic: count}, timeout_ms, ready=wait == "ready")).values():
            raise error

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
        known = self.cluster.table.topic(topic)
        if STANDBY in changed and known is not None and not known.ref.is_ownership:
            raise BadRequest("config", f"{STANDBY}: {topic} is a replicated topic, which has no standbys: leave it out")
        removed = config.keys() - changed.keys()
        overrides = {**await self.topic_config(topic), **changed}
        after = {key: value for key, value in overrides.items() if key not in removed}
        check_overrides(after, topic_rules(self.cluster, self.loop.context.settings), changed=changed)
        return after

    async def delete_topic(
        self, topic: str, *, dry_run: bool = False, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> TopicRef:
        """Delete a topic, and wait until nothing of it is left, and no broker that can be reached knows it.

        Args:
            timeout_ms: 0 marks it for deletion and does not wait.

        Raises:
            NotFound, BeingDeleted, TopicDeletionDisabled: nothing was changed.
            ActionTimedOut: it is marked, and is deleted as soon as every broker with a replica is online.
        """
        ref = cast(TopicRef, await self.ask(DeleteTopic(arguments.text(topic, "topic"), dry_run)))
        if not dry_run and timeout_ms:
            await self.wait_deleted(ref, timeout_ms=timeout_ms)
        return ref

    async def wait_deleted(self, ref: TopicRef | str, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        """Wait until nothing is left of a topic that was marked for deletion, or of any topic of a name.

        Raises:
            BadRequest: `ref` is neither.
            ActionTimedOut: it is deleted as soon as every broker with a replica is online.
        """
        topic, until_ms = arguments.topic(ref, "ref"), self.clock.monotonic_ms() + timeout_ms
        await self.answers.gone(topic, timeout_ms, by_id=ref is topic)
        rest_ms = max(0, until_ms - self.clock.monotonic_ms())
        await self.answers.delivered(f"deleting topic {topic.name}", rest_ms)

    async def grow_topic(
        self,
        topic: str,
        count: int,
        *,
        assignment: Sequence[Iterable[int]] | None = None,
        dry_run: bool = False,
        wait: WaitFor = "led",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        """Add partitions to a topic, and wait until all of them can be used.

        Args:
            count: number of partitions afterwards.
            assignment: replicas of each new partition, in order; None to have them placed.
            wait: see `create_topic`.
            timeout_ms: 0 does not wait.

        Raises:
            NotFound, BadRequest, BeingDeleted, ReassignmentRunning: nothing was changed.
            ActionTimedOut: the partitions exist, and are not complete yet; see `create_topic`.
        """
        wait, count = checked_wait(wait), arguments.whole(count, "count")
        placed = None if assignment is None else await _off_loop(_placed, assignment)
        await self.ask(AddPartitions(arguments.text(topic, "topic"), count, placed, dry_run))
        if not dry_run and timeout_ms:
            await self._complete(topic, count, timeout_ms, wait)


def _placed(assignment: Sequence[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(arguments.brokers(brokers, f"assignment[{index}]") for index, brokers in enumerate(assignment))


async def _off_loop(convert: Callable[[T], S], given: T) -> S:
    """Returns a converted argument. A large one is converted in a thread, so that the event loop is not held."""
    if isinstance(given, Sized) and len(given) > CONVERTED_AT_ONCE_MAX:
        return await run_in_thread(convert, given)
    return convert(given)
