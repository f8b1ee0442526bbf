"""Messages of sessions that participants have with the active controller.

    participant                                  controller
        ── Register ──────────────────────────────▶  commits a registration
        ◀───────────────────── Registered | Refused
        ── Heartbeat ─────────────────────────────▶  T/6 apart
        ◀─────────── Granted | Unconfirmed | Refused
        ── Goodbye ───────────────────────────────▶  ends the registration
        ◀──────────────────────── Closed | Refused

A participant that registers with the store, and advertises an address, has the controller verify it before:

        ── VerifyEndpoint ────────────────────────▶  connects to the address
        ◀────────────── EndpointVerified | Refused

A controller that is not active answers NotController to each of them. Every request has exactly one answer.

New fields are appended and have a default: an earlier version ignores them, a later one fills them in. A field is never
removed or given another meaning.
"""

import itertools
from collections.abc import Iterator
from typing import Annotated, Final, NamedTuple

import msgspec

from kactl.model import NO_BROKER, NO_EPOCH, Endpoint, given_name
from kactl.model.errors import BrokerIdTaken, KactlError

# An incarnation id is drawn at random when a participant starts. The rest of it counts the registrations since then.
INCARNATION_BYTES: Final = 16
START_BYTES: Final = 12
# Identity of all participants without an id and a name of their own.
UNNAMED: Final = "*"

_Incarnation = Annotated[bytes, msgspec.Meta(min_length=INCARNATION_BYTES, max_length=INCARNATION_BYTES)]
_Text = Annotated[str, msgspec.Meta(max_length=1_000)]
_Listed = 100
_GROUPS_MAX: Final = 1_000


class Register(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Register a broker in a session with the controller. Answer: Registered, or Refused with BrokerIdTaken.

    A repeated request returns the same registration, because its first answer may have been lost. The next life of the
    same participant replaces it: all leaderships of a life have ended before the next one registers.

    Attributes:
        incarnation: this registration; see `incarnation_ids`.
        timeout_ms: requested timeout of the session.
        peer: where other participants connect, if they can.
        groups, weight, name: see `kactl.model.Broker`.
    """

    broker: int
    incarnation: _Incarnation
    timeout_ms: Annotated[int, msgspec.Meta(gt=0)]
    endpoints: Annotated[tuple[Endpoint, ...], msgspec.Meta(max_length=_Listed)] = ()
    rack: _Text | None = None
    features: Annotated[tuple[tuple[str, int, int], ...], msgspec.Meta(max_length=_Listed)] = ()
    peer: Endpoint | None = None
    groups: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=_GROUPS_MAX)] | None = None
    weight: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 1
    name: _Text = ""


class Identify(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Return the broker id of a participant that has not chosen one. Answer: Identified, or Refused.

    It is asked before there is a link with that id, so that it is a part of the network's handshake.

    Attributes:
        broker: the id that it has had until now; NO_BROKER if it has had none.
        name: empty for a participant without a name.
        start: the first START_BYTES bytes of its incarnation ids.
    """

    broker: int
    name: str
    start: bytes


class Identified(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The id is the participant's: no other one is given it, until its registration has ended."""

    broker: int


class VerifyEndpoint(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Connect to the address that a participant is about to advertise in a session with the store, or advertises in
    one. Answer: EndpointVerified, or Refused with EndpointUnreachable.

    Attributes:
        incarnation: the registration that has to be found there.
        peer: where other participants connect.
    """

    broker: int
    incarnation: _Incarnation
    peer: Endpoint


class EndpointVerified(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The participant was found at its address, or the controller permits that it was not."""

    controller_epoch: int = NO_EPOCH


class Registered(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The broker is registered. The session lasts for `timeout_ms`, the granted timeout, if no heartbeat is granted.

    The answer grants no lease: the first granted heartbeat does.
    """

    broker_epoch: int
    timeout_ms: int
    controller_epoch: int = NO_EPOCH


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Renew a session. Answer: Granted, Unconfirmed, or Refused with SessionExpired.

    Attributes:
        seq: number of the heartbeat, rising in one registration. The answer has the same number.
    """

    broker: int
    broker_epoch: int
    seq: int


class Granted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The session lasts for another `timeout_ms` from the receipt of the heartbeat on.

    Attributes:
        metadata_version: of the controller's metadata, counted in each controller epoch; 0 if it does not count.
    """

    seq: int
    timeout_ms: int
    controller_epoch: int
    metadata_version: int = 0


class Unconfirmed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The controller cannot prove now that it is still in office, so the heartbeat renews nothing. Try again."""

    seq: int
    controller_epoch: int = NO_EPOCH


class Goodbye(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """End a session: nothing that needs its lease runs any more. Answer: Closed, also if it has ended before."""

    broker: int
    broker_epoch: int


class Closed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The registration of that epoch does not exist any more."""

    broker_epoch: int


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request was rejected.

    Attributes:
        error: name of the class in `kactl.model.errors`.
        reason: the text of the error.
        seq: of the heartbeat that was refused; 0 for another request.
        renewed_ms, ends_ms: see `BrokerIdTaken`.
    """

    error: _Text
    reason: str
    seq: int = 0
    renewed_ms: int | None = None
    ends_ms: int | None = None

    @classmethod
    def of(cls, error: KactlError) -> "Refused":
        if isinstance(error, BrokerIdTaken):
            return cls("BrokerIdTaken", str(error), renewed_ms=error.renewed_ms, ends_ms=error.ends_ms)
        return cls(type(error).__name__, str(error))


class NotController(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The instance is not the active controller.

    Attributes:
        active_id: the active controller as this instance knows it; NO_BROKER if it knows none.
        address: where the active controller listens for participants; empty if it is not known.
    """

    active_id: int = NO_BROKER
    address: _Text = ""
    controller_epoch: int = NO_EPOCH


SessionRequest = Register | Heartbeat | Goodbye | VerifyEndpoint | Identify
SessionAnswer = Registered | Granted | Unconfirmed | Closed | Refused | NotController | EndpointVerified | Identified


class ParticipantLink(NamedTuple):
    """An open link of a participant, as a controller knows it.

    Attributes:
        incarnation: of the registration that it serves, or is about to serve.
        address: of the participant's side; empty within one process.
        claim: the identity that its network has verified: a name, or the id.
    """

    broker: int
    incarnation: bytes
    address: str = ""
    claim: str = ""


def incarnation_ids(start: bytes) -> Iterator[bytes]:
    """Yields the ids of the registrations of one participant.

    Args:
        start: START_BYTES random bytes.
    """
    if len(start) != START_BYTES:
        raise ValueError(f"{len(start)} bytes for the start of a participant, not {START_BYTES}")
    for life in itertools.count(1):
        yield start + life.to_bytes(INCARNATION_BYTES - START_BYTES, "big")


def claim_of(broker: int, name: str) -> str:
    """Returns the identity that a participant has to prove, from the name in its registration: its id, its name, or
    UNNAMED."""
    return (given_name(name) or UNNAMED) if name else str(broker)


def is_next_life(earlier: bytes, later: bytes) -> bool:
    """Returns whether `later` is a registration that the same participant makes after `earlier` has ended there."""
    if len(earlier) != INCARNATION_BYTES or len(later) != INCARNATION_BYTES:
        return False
    return earlier[:START_BYTES] == later[:START_BYTES] and earlier < later
