"""Topics that a participant ensures at the active controller."""

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from kactl.decide.messages.admin import ControllerRequest, EnsureTopic, TopicProgress
from kactl.decide.messages.topic_requests import WaitFor, ensure_request
from kactl.model import TopicKind
from kactl.model.errors import ActionTimedOut, ControllerUnreachable, NotController
from kactl.runtime.clock import Clock
from kactl.runtime.time_limit import limited

from .incarnation import Incarnation

RETRY_MS: Final = 100


class TopicRequests:
    """A part of `Participant`."""

    _clock: Clock

    @property
    def _incarnation(self) -> Incarnation | None:
        """The present registration; None if there is none."""
        raise NotImplementedError

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
        timeout_ms: int = 30_000,
    ) -> bool:
        """Ask the active controller to create a topic unless it exists, and wait until the controller knows it.

        Arguments, result and errors are those of `Controller.ensure_topic`. Until the time limit, this waits for a
        controller that can be reached.
        """
        request = ensure_request(topic, partitions, replication_factor, assignment, config, wait, kind, standby)
        return await ensured(self._ask_controller, request, self._clock, timeout_ms)

    async def _ask_controller(self, request: ControllerRequest) -> Any:
        if self._incarnation is None:
            raise ControllerUnreachable("this participant is not registered")
        return await self._incarnation.controller.ask(request)


async def ensured(
    ask: Callable[[ControllerRequest], Awaitable[Any]], request: EnsureTopic, clock: Clock, timeout_ms: float
) -> bool:
    """Repeat a request until the topic is as far as requested. Returns whether it has created the topic.

    Raises:
        ActionTimedOut: with the partitions that are not, or the reason that no controller could be reached.
        KactlError: the controller has rejected the request.
    """
    until_ms, created = clock.monotonic_ms() + timeout_ms, False
    while True:
        late = ControllerUnreachable("the controller has sent no response in the rest of the time")
        # One attempt at least, also without any time. Reasons for all partitions are only needed for the error.
        rest_ms = max(until_ms - clock.monotonic_ms(), RETRY_MS)
        last = msgspec.structs.replace(request, explained=rest_ms <= RETRY_MS)
        try:
            progress: TopicProgress = await limited(clock, rest_ms, functools.partial(ask, last), late)
        except (ControllerUnreachable, NotController) as error:
            progress = TopicProgress(False, request.count, (str(error),))
            last = msgspec.structs.replace(last, explained=True)
        created |= progress.created
        if not progress.waiting:
            return created
        if clock.monotonic_ms() < until_ms:
            await clock.sleep_ms(RETRY_MS)
        elif last.explained:
            action = f"{'electing leaders for' if request.led else 'creating'} topic {request.topic}"
            raise ActionTimedOut(action, timeout_ms, "; ".join(progress.reasons), progress.partitions)
