"""Waits of callers until what they have requested is known to the brokers.

A topic is complete once each of its partitions has a leader that has acknowledged its order, and each broker has
acknowledged the requests that were queued with these orders, its metadata among them. A broker that cannot be reached
is only waited for where it leads.

Unlike in Kafka, whose controller waits for the metadata of its own broker: a client that looks at another one right
after the response may miss the topic there.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

import anyio
import msgspec

from kactl.decide.machines.topic_progress import leader_epochs, progress_of
from kactl.decide.messages.admin import AwaitEvents, ElectionResult, TopicProgress
from kactl.decide.state.readiness import SETTLED_MS
from kactl.model import TopicRef
from kactl.model.errors import ActionTimedOut, KactlError, NotController

from .channels import Channels
from .controller import ControllerLoop

# Topics of one caller that are looked at after an event. The others are complete at the same time as a rule.
LOOKED_AT_MAX: Final = 64


class _Topic:
    """A topic that a caller waits for.

    Attributes:
        epochs: of the leaders whose orders were queued under `queued` or before; None until it is led.
    """

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        self.epochs: bytes | None = None
        self.queued = 0


class Answers:
    """The waits of all callers of one controller. They hold nothing but their own memory."""

    def __init__(self, loop: ControllerLoop, channels: Channels) -> None:
        self._loop = loop
        self._cluster = loop.cluster
        self._history = loop.context.history
        self._channels = channels

    async def complete(
        self, counts: Mapping[str, int], timeout_ms: float, *, ready: bool = False
    ) -> dict[str, KactlError]:
        """Wait until topics are complete, each with at least a number of partitions.

        Args:
            ready: leaders must serve, too: those with handlers have reported that these lead.

        Returns:
            The topics that are not complete, with ActionTimedOut or NotController.
        """
        waiting = {name: _Topic(name, count) for name, count in counts.items()}
        try:
            with anyio.fail_after(timeout_ms / 1000), self._channels.watched():
                await self._until_complete(waiting, self._loop.cluster.fence.epoch, ready)
        except TimeoutError:
            return {
                name: ActionTimedOut(
                    f"electing leaders for topic {name}", timeout_ms, "; ".join(progress.reasons), progress.partitions
                )
                for name, topic in waiting.items()
                if (progress := self._progress(topic, ready, explained=True)).waiting or topic.queued
            }
        except NotController as moved:
            return dict.fromkeys(waiting, moved)
        return {}

    async def _until_complete(self, waiting: dict[str, _Topic], epoch: int, ready: bool) -> None:
        """Remove topics that are complete until none is left."""
        while waiting:
            self._check_active(epoch)
            looked_at = list(islice(waiting.values(), LOOKED_AT_MAX))
            moved = [topic for topic in looked_at if self._epochs(topic) not in (None, topic.epochs)]
            done = [topic for topic in looked_at if topic not in moved and self._is_complete(topic, ready)]
            if not moved and not done:
                # A leader that acts proves something after a while, without another event.
                with anyio.move_on_after(SETTLED_MS / 1000 if ready else None):
                    await self._history.changed()
                continue
            # The event that elected these leaders has queued its requests when it ends, and the answers of leaders are
            # taken into account when their events end: a leader may have refused.
            await self._loop.ref.ask(AwaitEvents())
            for topic in moved:
                topic.epochs, topic.queued = self._epochs(topic), self._channels.queued
            for topic in done:
                if self._epochs(topic) == topic.epochs:
                    del waiting[topic.name]

    def _epochs(self, topic: _Topic) -> bytes | None:
        return leader_epochs(self._cluster, topic.name, topic.count)

    def _is_complete(self, topic: _Topic, ready: bool) -> bool:
        return topic.epochs is not None and not self._progress(topic, ready).waiting

    def _progress(self, topic: _Topic, ready: bool, *, explained: bool = False) -> TopicProgress:
        delivery = self._channels.delivery(topic.queued or self._channels.queued)
        ready_ms = self._loop.context.clock.monotonic_ms() if ready else None
        return progress_of(
            self._cluster, topic.name, count=topic.count, delivery=delivery, ready_ms=ready_ms, explained=explained
        )

    async def elected(self, results: list[ElectionResult], timeout_ms: float) -> list[ElectionResult]:
        """Returns the results of an election, once each broker has answered the requests that are queued now.

        Elections that brokers have not acknowledged in time get REQUEST_TIMED_OUT: they were held.
        """
        if not any(result.outcome == "ok" for result in results):
            return results
        try:
            await self.delivered("the election", timeout_ms)
        except ActionTimedOut as late:
            replaced = {"outcome": "failed", "error": late.code, "message": str(late)}
            return [
                msgspec.structs.replace(result, **replaced) if result.outcome == "ok" else result for result in results
            ]
        return results

    async def delivered(self, action: str, timeout_ms: float) -> None:
        """Wait until each broker has answered the requests that are queued now.

        Raises:
            ActionTimedOut: some have not, and can be reached.
            NotController: this instance is not active any more.
        """
        delivery = self._channels.delivery(self._channels.queued)

        def reason() -> str:
            return "; ".join(
                f"broker {broker} has not acknowledged it"
                f"{f' ({error})' if (error := delivery.last_error(broker)) else ''}"
                for broker in delivery.behind(False)
            )

        with self._channels.watched():
            await self.until(lambda: not delivery.behind(False), action, timeout_ms, reason=reason)

    async def gone(self, topic: TopicRef, timeout_ms: float, *, by_id: bool) -> None:
        """Wait until nothing of a topic is left, or of any topic of its name.

        Raises:
            ActionTimedOut, NotController.
        """

        def is_gone() -> bool:
            known = self._cluster.table.topic(topic.name)
            return known is None or (by_id and known.ref.id != topic.id)

        await self.until(is_gone, f"deleting topic {topic.name}", timeout_ms)

    async def until(
        self,
        reached: Callable[[], bool],
        action: str,
        timeout_ms: float,
        *,
        by_anyone: bool = False,
        reason: Callable[[], str] = lambda: "",
    ) -> None:
        """Wait until `reached` returns True; call it after every event.

        Args:
            by_anyone: whether it may become True while another instance is the controller.
            reason: returns what is missing, for the error.

        Raises:
            ActionTimedOut, NotController.
        """
        epoch = self._cluster.fence.epoch
        try:
            with anyio.fail_after(timeout_ms / 1000):
                while True:
                    if not by_anyone:
                        self._check_active(epoch)
                    if reached():
                        return
                    await self._history.changed()
        except TimeoutError:
            raise ActionTimedOut(action, timeout_ms, reason()) from None

    def _check_active(self, epoch: int) -> None:
        """Raise NotController if the state in memory was dropped since, together with the controllership."""
        if not self._loop.is_active or self._cluster.fence.epoch != epoch:
            raise NotController(self._loop.active_id, self._loop.active_address)
