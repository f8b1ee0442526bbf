"""A group of participants in one process, as the server and most programs use them."""

import functools
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self

import anyio

from kactl.decide.messages import arguments
from kactl.model.errors import BadRequest, NotFound
from kactl.runtime.background import BlockStack, raise_alone
from kactl.runtime.clock import Clock
from kactl.runtime.patience import START_TIMEOUT_MS
from kactl.stores.base import Store
from kactl.transports.base import ParticipantNetwork

from .controlled_shutdown import ATTEMPTS
from .handlers.hosting import MakeHandler
from .isr_update import InSync
from .lagging_replicas import LAG_MS
from .leases.terms import LeaseConfig
from .listener import Listener
from .participant import Participant

# Each participant costs three tasks and a registration. This bound is far above any useful number in one process.
PARTICIPANTS_MAX: Final = 1_000


class Participants:
    """Participants with the ids 1 to `count` in one process, for tests and examples.

        async with kactl.Participants(3, store=controller.store, hub=controller.hub, handler=Shard) as participants:
            await participants.kill(1)

    They start together, and end in reverse order.

    Args:
        listener: returns the listener of the participant with that id.
        shutdown_attempts: the attempts of a controlled shutdown if one participant is stopped; at most one if the
            whole group ends.
        lag_ms, and the others: see `Participant`.

    Raises:
        BadRequest: `count` is negative, or more than PARTICIPANTS_MAX.
    """

    def __init__(
        self,
        count: int,
        *,
        store: Store | None = None,
        hub: ParticipantNetwork | None = None,
        network: ParticipantNetwork | None = None,
        clock: Clock | None = None,
        listener: Callable[[int], Listener] | None = None,
        in_sync: InSync | None = None,
        session_timeout_ms: int | None = None,
        start_timeout_ms: int | None = START_TIMEOUT_MS,
        lag_ms: float = LAG_MS,
        shutdown_attempts: int = ATTEMPTS,
        handler: MakeHandler | None = None,
        lease: LeaseConfig | None = None,
    ) -> None:
        if not 0 <= arguments.whole(count, "count") <= PARTICIPANTS_MAX:
            raise BadRequest("count", f"{count} participants are not possible: choose 0 to {PARTICIPANTS_MAX}")
        self._open = BlockStack("the participants")
        # The brokers that take over its leaderships end next, so a second attempt would change nothing.
        self._attempts_at_end = min(shutdown_attempts, 1)
        self._members = {
            broker: Participant(
                broker,
                store=store,
                hub=hub,
                network=network,
                clock=clock,
                listener=None if listener is None else listener(broker),
                in_sync=in_sync,
                session_timeout_ms=session_timeout_ms,
                start_timeout_ms=start_timeout_ms,
                lag_ms=lag_ms,
                shutdown_attempts=shutdown_attempts,
                handler=handler,
                lease=lease,
            )
            for broker in range(1, count + 1)
        }

    async def __aenter__(self) -> Self:
        """Start all of them.

        Raises:
            BrokerIdTaken, StoreError: the error of the first participant that could not start; no participant runs
                then.
        """
        failures: list[Exception] = []

        async def start(participant: Participant) -> None:
            try:
                await participant.start()
            except Exception as error:
                failures.append(error)
                tasks.cancel_scope.cancel()

        try:
            for participant in self:
                await participant.open()
                self._open.push_async_exit(
                    functools.partial(participant.leave, shutdown_attempts=self._attempts_at_end)
                )
            async with anyio.create_task_group() as tasks:
                for participant in self:
                    tasks.start_soon(start, participant)
            if failures:
                raise failures[0]
        except BaseException as error:
            if not await self._open.__aexit__(type(error), error, error.__traceback__):
                raise_alone(error)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._open.__aexit__(kind, error, trace)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Participant]:
        return iter(self._members.values())

    def __getitem__(self, broker: int) -> Participant:
        """Returns the participant with that id. Raises NotFound if there is none."""
        participant = self._members.get(broker)
        if participant is None:
            raise NotFound("participant", broker)
        return participant

    async def kill(self, broker: int) -> None:
        """See `Participant.kill`. This method and those below raise NotFound if no participant has that id."""
        await self[broker].kill()

    async def restart(self, broker: int) -> None:
        """See `Participant.restart`."""
        await self[broker].restart()

    def pause(self, broker: int) -> None:
        """See `Participant.pause`."""
        self[broker].pause()

    def resume(self, broker: int) -> None:
        """See `Participant.resume`."""
        self[broker].resume()
