"""Sources of sessions: the store, or the active controller.

A participant registers in a session, and leads while its renewals are confirmed. Without a client of the store it has
its session with the controller: the requests go over the link to it, and its heartbeats are the renewals.
"""

from typing import Final, Protocol

from kactl.decide.messages.sessions import (
    Closed,
    Goodbye,
    Granted,
    Heartbeat,
    Refused,
    Register,
    Registered,
    SessionAnswer,
    SessionRequest,
    Unconfirmed,
)
from kactl.model import NO_EPOCH, Broker, Endpoint
from kactl.model.errors import (
    BrokerIdTaken,
    EndpointUnreachable,
    KactlError,
    SessionExpired,
    StoreUnavailable,
)
from kactl.stores.base import Session, SessionBound, Store
from kactl.transports.base import ControlLink

# Kafka's default for a broker's session (zookeeper.session.timeout.ms).
STORE_TIMEOUT_MS: Final = 18_000
# Kafka's default for a broker's session with KRaft controllers (broker.session.timeout.ms). Three times the default
# controllership over SQLite and etcd: leases outlast a controller that was killed, and the takeover of the next one.
REMOTE_TIMEOUT_MS: Final = 9_000
# The controller grants a session only to clocks that it has allowed for; see `kactl.decide.machines.remote_sessions`.
_BOUND: Final = SessionBound(kind="counted")


class SessionSource(Protocol):
    """Opens sessions.

    Attributes:
        verifies: whether registering has the address of the participant verified.
    """

    verifies: bool

    async def open(self, link: ControlLink) -> Session:
        """Returns a new session of a participant with an open link."""


class StoreSessions:
    """Sessions with the store."""

    verifies = False

    def __init__(self, store: Store, timeout_ms: int) -> None:
        self._store = store
        self._timeout_ms = timeout_ms

    async def open(self, link: ControlLink) -> Session:
        """See `SessionSource`."""
        return await self._store.new_session(self._timeout_ms)


class ControllerSessions:
    """Sessions with the active controller."""

    verifies = True

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms

    async def open(self, link: ControlLink) -> Session:
        """See `SessionSource`."""
        return RemoteSession(link, self._timeout_ms)


class RemoteSession:
    """A session with the active controller; see `kactl.stores.base.Session`.

    It survives the controller: the next one knows the registration from the store, and grants heartbeats for the same
    broker epoch.
    """

    def __init__(self, link: ControlLink, timeout_ms: int) -> None:
        self._link = link
        self._timeout_ms = timeout_ms
        self._broker = -1
        self._epoch = NO_EPOCH
        self._seq = 0
        self._is_over = False

    @property
    def timeout_ms(self) -> int:
        return self._timeout_ms

    @property
    def bound(self) -> SessionBound:
        return _BOUND

    async def register(self, broker: Broker) -> int:
        """See `Session.register`. It may be repeated: the answer is the same.

        Raises:
            ControllerUnreachable: no controller answered. The broker may be registered: its next life replaces that
                registration.
            EndpointUnreachable: the controller does not find this participant at the address that it advertises.
        """
        request = Register(
            broker.id,
            broker.incarnation,
            self._timeout_ms,
            broker.endpoints,
            broker.rack,
            broker.features,
            broker.peer,
            broker.groups,
            broker.weight,
            broker.name,
        )
        answer = await self._link.session(request)
        if not isinstance(answer, Registered):
            raise session_error(request, answer)
        self._broker, self._epoch, self._timeout_ms = broker.id, answer.broker_epoch, answer.timeout_ms
        return answer.broker_epoch

    async def renew(self, sent_ns: int) -> None:
        """See `Session.renew`.

        Raises:
            ControllerUnreachable: no controller answered.
        """
        if self._is_over:
            raise SessionExpired("the session has ended: register again")
        self._seq += 1
        request = Heartbeat(self._broker, self._epoch, self._seq)
        answer = await self._link.session(request)
        if isinstance(answer, Granted) and answer.seq == request.seq and answer.timeout_ms == self._timeout_ms:
            return
        error = session_error(request, answer)
        self._is_over |= isinstance(error, SessionExpired)
        raise error

    async def keep_alive(self) -> None:
        """See `Session.keep_alive`."""
        await self.renew(0)

    async def close(self) -> None:
        """See `Session.close`. Nothing that needs the lease may run any more."""
        is_open = self._epoch != NO_EPOCH and not self._is_over
        self._is_over = True
        if is_open:
            request = Goodbye(self._broker, self._epoch)
            answer = await self._link.session(request)
            if not isinstance(answer, Closed):
                raise session_error(request, answer)


def unreachable(peer: Endpoint, reason: str) -> EndpointUnreachable:
    """Returns the error of a controller that has refused an address, from its text."""
    return EndpointUnreachable(peer.host, peer.port, reason.removeprefix(f"{peer.host}:{peer.port}: "))


def session_error(request: SessionRequest, answer: SessionAnswer) -> KactlError:
    """Returns the error of an answer that is not the wanted one."""
    match answer:
        case Refused(error="BrokerIdTaken"):
            return BrokerIdTaken(request.broker, renewed_ms=answer.renewed_ms, ends_ms=answer.ends_ms)
        case Refused(error="SessionExpired", reason=reason):
            return SessionExpired(reason)
        case Refused(error="EndpointUnreachable", reason=reason) if isinstance(request, Register) and request.peer:
            return unreachable(request.peer, reason)
        case Refused(error=error, reason=reason):
            return StoreUnavailable(f"the controller has refused the request ({error}): {reason}")
        case Unconfirmed():
            return StoreUnavailable("the controller cannot confirm now that it is still in office")
        case _:
            return StoreUnavailable(f"the answer of the controller does not fit the request: {answer}")
