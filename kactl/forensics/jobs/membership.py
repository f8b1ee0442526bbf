"""Which broker was away when, out of what controllers said of brokers, in order of time.

    present ──gone, fenced, not among the live──▶ away ──added, unfenced, among the live──▶ present
       │ └── bounced: gone and back at once ──┘
       └── stopping: its next absence is one that somebody wanted

A broker of which nothing was said is taken for present from the first on that says so; one that is added without having
been seen was away from before the logs.
"""

import datetime
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kactl.forensics.event_types import EventType

FAILED: Final = "failed"
STOPPED: Final = "stopped"
BOUNCED: Final = "bounced"
FENCED: Final = "fenced"
CONTROLLER: Final = "controller"
# So long after its election a controller finds its predecessor gone, if that is why there was an election.
_PREDECESSOR_S: Final = 60
# So long after it has told of a bounce a controller calls what follows from it, if it does.
_CALLBACK_S: Final = 60


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What one line says of brokers; see `event_types`. `brokers`: all that live; None or empty if it does not say."""

    at: datetime.datetime
    type: str
    controller: int | None = None
    broker: int | None = None
    brokers: tuple[int, ...] | None = None
    added: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()
    bounced: tuple[int, ...] = ()
    error_us: int | None = None


class Absence(msgspec.Struct, kw_only=True):
    """One absence; see `absences.COLUMNS`."""

    broker: int
    detected_at: datetime.datetime | None
    back_at: datetime.datetime | None = None
    shutdown_at: datetime.datetime | None = None
    how: str
    controller: int | None = None
    error_us: int | None = None
    elected_at: datetime.datetime | None = None  # of the controller that took note
    is_listed: bool = False  # whether it was only missing from what a controller lists


class _Broker(msgspec.Struct):
    present: bool | None = None
    stopping_at: datetime.datetime | None = None
    bounced_at: datetime.datetime | None = None
    absence: Absence | None = None


class Membership:
    """The brokers, as far as the lines so far tell."""

    def __init__(self) -> None:
        self._brokers: dict[int, _Broker] = {}
        self._controller: int | None = None
        self._predecessor: int | None = None
        self._elected_at: datetime.datetime | None = None
        self._activated_at: datetime.datetime | None = None  # the same, also of one that follows itself

    def hear(self, said: Said) -> Iterator[Absence]:
        """Take one line; absences come as they begin, and are filled in as they end."""
        match said.type:
            case EventType.CONTROLLER_ELECTED:
                self._elected(said)
            case EventType.BROKER_STOPPING if said.broker is not None:
                self._of(said.broker).stopping_at = said.at
            case EventType.BROKER_STOPPED_COUNTING if said.broker is not None:
                # It is said of a broker that is gone, too, and then changes nothing: its absence has taken it.
                self._of(said.broker).stopping_at = None
            case EventType.BROKER_FENCED if said.broker is not None:
                yield from self._gone(said.broker, said, FENCED)
            case EventType.BROKER_UNFENCED if said.broker is not None:
                yield from self._back(said.broker, said, is_new=False)
            case EventType.BROKERS_CHANGED | EventType.BROKER_FAILED | EventType.BROKER_STARTED:
                yield from self._changed(said)

    def _elected(self, said: Said) -> None:
        self._activated_at = said.at
        if said.controller != self._controller:
            self._predecessor, self._controller = self._controller, said.controller
            self._elected_at = said.at

    def _changed(self, said: Said) -> Iterator[Absence]:
        for broker in said.bounced:
            yield from self._gone(broker, said, BOUNCED)
            yield from self._back(broker, said, is_new=True)
            self._of(broker).bounced_at = said.at
        for broker in said.removed:
            if not self._is_of_bounce(broker, said):
                yield from self._gone(broker, said, FAILED)
        for broker in said.added:
            yield from self._back(broker, said, is_new=True)
        if said.brokers:  # a controller lives itself, so that an empty list is none
            for broker in said.brokers:
                yield from self._back(broker, said, is_new=False)
            for broker in [each for each, known in self._brokers.items() if known.present]:
                if broker not in said.brokers:
                    yield from self._gone(broker, said, FAILED)

    def _gone(self, broker: int, said: Said, how: str) -> Iterator[Absence]:
        known = self._of(broker)
        if known.present is False:
            return
        if how == FAILED and self._is_predecessor(broker, said):
            how = CONTROLLER
        if how != BOUNCED and known.stopping_at is not None:
            how = STOPPED
        known.present = False
        known.absence = Absence(
            broker=broker,
            detected_at=said.at,
            shutdown_at=known.stopping_at,
            how=how,
            controller=said.controller,
            error_us=said.error_us,
            elected_at=self._activated_at,
            is_listed=bool(said.brokers) and broker not in said.removed,
        )
        known.stopping_at = None
        yield known.absence

    def _back(self, broker: int, said: Said, *, is_new: bool) -> Iterator[Absence]:
        """`is_new`: whether it is said to have come just now, and not only to be there."""
        known = self._of(broker)
        if broker == self._predecessor and (known.absence is not None or is_new):
            # The controllership went with a session of before: what is lost from now on is lost by itself.
            self._predecessor = None
        if known.absence is not None:
            known.absence.back_at = said.at
        elif known.present is None and is_new:
            yield Absence(
                broker=broker,
                detected_at=None,
                back_at=said.at,
                how=FAILED,
                controller=said.controller,
                error_us=said.error_us,
            )
        known.present, known.absence = True, None

    def _is_predecessor(self, broker: int, said: Said) -> bool:
        if self._elected_at is None or broker != self._predecessor:
            return False
        return said.at - self._elected_at <= datetime.timedelta(seconds=_PREDECESSOR_S)

    def _is_of_bounce(self, broker: int, said: Said) -> bool:
        """Whether a failure is no other one than the bounce before it.

        Kafka's controller handles a bounce as a failure and a start, and says so in a line for each.
        """
        known = self._of(broker)
        bounced_at, known.bounced_at = known.bounced_at, None
        if said.type != EventType.BROKER_FAILED or bounced_at is None:
            return False
        return said.at - bounced_at <= datetime.timedelta(seconds=_CALLBACK_S)

    def _of(self, broker: int) -> _Broker:
        return self._brokers.setdefault(broker, _Broker())


def absences(lines: Iterable[Said]) -> list[Absence]:
    """All absences that the lines tell of, in the order in which they began. The lines come in order of time."""
    membership = Membership()
    return [absence for said in lines for absence in membership.hear(said)]
