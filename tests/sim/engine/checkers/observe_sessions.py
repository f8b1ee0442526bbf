"""Sessions of participants with one controller: recorded by functions that are wrapped around its own."""

from collections.abc import Callable
from typing import Any, Final

from kactl.actors.system import Controller
from kactl.decide.messages.sessions import Granted, Heartbeat, Unconfirmed
from kactl.model import Fence
from kactl.runtime.clock import Clock

# Paths from a controller to what is wrapped or read.
WRAPPED: Final = (
    "sessions.elected",
    "sessions._heartbeat",
    "sessions._end",
    "sessions._store.check",
    "sessions._store.register_remote",
)

Record = Callable[..., None]


class SessionRecorder:
    """Records `session.*`. All times are those of the node's clock for leases.

    Args:
        record: records an event of the controller's node.
    """

    def __init__(self, controller: Controller, record: Record) -> None:
        sessions = controller.sessions
        self._record = record
        self._clock = controller.clock
        elected, heartbeat, end = sessions.elected, sessions._heartbeat, sessions._end

        def electing(fence: Fence) -> None:
            elected(fence)
            record("session.term", controller_epoch=fence.epoch, at_ns=self._clock.lease_ns())

        def beating(term: Any, request: Heartbeat, received_ns: int) -> Any:
            answer = heartbeat(term, request, received_ns)
            record(
                "session.heartbeat", controller_epoch=term.fence.epoch, broker=request.broker,
                life=request.broker_epoch, verdict=_VERDICTS.get(type(answer), "refused"), received_ns=received_ns,
                at_ns=self._clock.lease_ns(), timeout_ms=answer.timeout_ms if isinstance(answer, Granted) else 0,
            )  # fmt: skip
            return answer

        async def ending(term: Any, session: Any, cause: str) -> None:
            record(
                "session.end", controller_epoch=term.fence.epoch, broker=session.broker, life=session.epoch,
                cause=cause, at_ns=self._clock.lease_ns(), timeout_ms=session.timeout_ms,
            )  # fmt: skip
            await end(term, session, cause)

        sessions.elected = electing  # type: ignore[method-assign]
        sessions._heartbeat = beating  # type: ignore[method-assign]
        sessions._end = ending  # type: ignore[method-assign]
        sessions._store = _Store(sessions._store, self._clock, record)


_VERDICTS: Final[dict[type, str]] = {Granted: "granted", Unconfirmed: "unconfirmed"}


class _Store:
    """A store that records when writes and checks that prove the controllership were sent."""

    def __init__(self, store: Any, clock: Clock, record: Record) -> None:
        self._store = store
        self._clock = clock
        self._record = record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def check(self, fence: Fence) -> None:
        sent_ns = self._clock.lease_ns()
        await self._store.check(fence)
        self._record("session.confirmed", controller_epoch=fence.epoch, sent_ns=sent_ns)

    async def register_remote(self, broker: Any, incarnation: bytes, timeout_ms: int, fence: Fence) -> Any:
        sent_ns = self._clock.lease_ns()
        epoch = await self._store.register_remote(broker, incarnation, timeout_ms, fence)
        self._record("session.confirmed", controller_epoch=fence.epoch, sent_ns=sent_ns)
        return epoch
