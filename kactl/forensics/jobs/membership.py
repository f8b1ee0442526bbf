"""Absences of brokers, from controllers' lines in time order.

    present ──gone, fenced, not among the live──▶ away ──added, unfenced, among the live──▶ present
       │ └── bounced: gone and back at once ──┘
       └── stopping: its next absence is planned

A broker is assumed present from the first line that shows it present. A broker that is added without having been seen
was absent from before the logs.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kactl.forensics.event_types import EventType

FAILED: Final = "failed"
STOPPED: Final = "stopped"
BOUNCED: Final = "bounced"
FENCED: Final = "fenced"
CONTROLLER: Final = "controller"
# A predecessor that is found absent within this time of an election was the cause of the election.
_PREDECESSOR_US: Final = 60_000_000
# The callbacks of a bounce follow its line within this time.
_CALLBACK_US: Final = 60_000_000


class BrokerLine(msgspec.Struct, frozen=True, kw_only=True):
    """A controller's line about brokers; see `event_types`. `brokers`: all live ones, or those that are no longer
    stopping; None or empty if the line does not list them. Times are microseconds since 1970.
    """

    at_us: int
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
    detected_us: int | None
    back_us: int | None = None
    shutdown_us: int | None = None
    how: str
    controller: int | None = None
    error_us: int | None = None
    elected_us: int | None = None  # of the controller that detected it
    is_listed: bool = False  # whether it was only missing from a controller's list


class _Broker(msgspec.Struct):
    present: bool | None = None
    stopping_us: int | None = None
    bounced_us: int | None = None
    absence: Absence | None = None


class Membership:
    """The known brokers, according to the lines so far."""

    def __init__(self) -> None:
        self._brokers: dict[int, _Broker] = {}
        self._controller: int | None = None
        self._predecessor: int | None = None
        self._elected_us: int | None = None
        self._activated_us: int | None = None  # the same, also if the controller succeeds itself

    def process(self, line: BrokerLine) -> Iterator[Absence]:
        """Process one line. Absences are added when they begin, and completed when they end."""
        match line.type:
            case EventType.CONTROLLER_ELECTED:
                self._elected(line)
            case EventType.BROKER_STOPPING if line.broker is not None:
                self._of(line.broker).stopping_us = line.at_us
            case EventType.BROKER_STOPPED_COUNTING:
                # The line may also concern an absent broker, and then has no effect: the absence has consumed it.
                for broker in line.brokers or () if line.broker is None else (line.broker,):
                    self._of(broker).stopping_us = None
            case EventType.BROKER_FENCED if line.broker is not None:
                yield from self._gone(line.broker, line, FENCED)
            case EventType.BROKER_UNFENCED if line.broker is not None:
                yield from self._back(line.broker, line, is_new=False)
            case EventType.BROKERS_CHANGED | EventType.BROKER_FAILED | EventType.BROKER_STARTED:
                yield from self._changed(line)

    def _elected(self, line: BrokerLine) -> None:
        self._activated_us = line.at_us
        if line.controller != self._controller:
            self._predecessor, self._controller = self._controller, line.controller
            self._elected_us = line.at_us

    def _changed(self, line: BrokerLine) -> Iterator[Absence]:
        for broker in line.bounced:
            yield from self._gone(broker, line, BOUNCED)
            yield from self._back(broker, line, is_new=True)
            self._of(broker).bounced_us = line.at_us
        for broker in line.removed:
            if not self._is_of_bounce(broker, line):
                yield from self._gone(broker, line, FAILED)
        for broker in line.added:
            yield from self._back(broker, line, is_new=True)
        if line.brokers:  # a controller is a live broker itself, so an empty list means no list
            for broker in line.brokers:
                yield from self._back(broker, line, is_new=False)
            for broker in [broker_id for broker_id, known in self._brokers.items() if known.present]:
                if broker not in line.brokers:
                    yield from self._gone(broker, line, FAILED)

    def _gone(self, broker: int, line: BrokerLine, how: str) -> Iterator[Absence]:
        known = self._of(broker)
        if known.present is False:
            return
        if how == FAILED and self._is_predecessor(broker, line):
            how = CONTROLLER
        if how != BOUNCED and known.stopping_us is not None:
            how = STOPPED
        known.present = False
        known.absence = Absence(
            broker=broker,
            detected_us=line.at_us,
            shutdown_us=known.stopping_us,
            how=how,
            controller=line.controller,
            error_us=line.error_us,
            elected_us=self._activated_us,
            is_listed=bool(line.brokers) and broker not in line.removed,
        )
        known.stopping_us = None
        yield known.absence

    def _back(self, broker: int, line: BrokerLine, *, is_new: bool) -> Iterator[Absence]:
        """`is_new`: whether the line states that it came just now, and not only that it is present."""
        known = self._of(broker)
        if broker == self._predecessor and (known.absence is not None or is_new):
            # The controllership ended with an earlier session; a loss from now on is a separate one.
            self._predecessor = None
        if known.absence is not None:
            known.absence.back_us = line.at_us
        elif known.present is None and is_new:
            yield Absence(
                broker=broker,
                detected_us=None,
                back_us=line.at_us,
                how=FAILED,
                controller=line.controller,
                error_us=line.error_us,
            )
        known.present, known.absence = True, None

    def _is_predecessor(self, broker: int, line: BrokerLine) -> bool:
        if self._elected_us is None or broker != self._predecessor:
            return False
        return line.at_us - self._elected_us <= _PREDECESSOR_US

    def _is_of_bounce(self, broker: int, line: BrokerLine) -> bool:
        """True if a failure belongs to the bounce before it.

        Kafka's controller handles a bounce as a failure and a start, and logs a line for each.
        """
        known = self._of(broker)
        bounced_us, known.bounced_us = known.bounced_us, None
        if line.type != EventType.BROKER_FAILED or bounced_us is None:
            return False
        return line.at_us - bounced_us <= _CALLBACK_US

    def _of(self, broker: int) -> _Broker:
        return self._brokers.setdefault(broker, _Broker())


def absences(lines: Iterable[BrokerLine]) -> list[Absence]:
    """Returns all absences in the lines, in the order in which they began. The lines must be in time order."""
    membership = Membership()
    return [absence for line in lines for absence in membership.process(line)]
