"""Ids of participants that have chosen none.

    a name ──first use──▶ its id, stored ──for ever, or until NAMES_MAX later names──▶ forgotten
    no name ──▶ reserved ──registration──▶ in use ──its end, and no replica is left there──▶ free

The id of a name is stored before it is given, so that each later controller gives the same one. An id without a name is
only reserved in memory: if a later controller gives it to two participants, the first one that registers has it.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from kactl.decide.messages.admin import AllocateBrokerId
from kactl.decide.messages.events import Event
from kactl.model import GIVEN_IDS, given_name
from kactl.model.errors import NoFreeId
from kactl.runtime.logs import logger

from .base import ControllerContext, Handler, Handlers

log = logger(__name__)

# All names are stored in one entry, which each controller reads at its start: 100 KiB of names of usual length.
NAMES_MAX: Final = 2_000
# How long an id is kept for a participant that has not registered yet, and for how many of them.
RESERVED_MS: Final = 60_000
RESERVED_MAX: Final = 1_000


class _Reservation(NamedTuple):
    """Until when an id is kept, and for which participant."""

    start: bytes
    ends_ms: float


class ParticipantIds(Handlers):
    """Handler of requests for broker ids."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._reserved: dict[int, _Reservation] = {}  # the earliest first

    def handlers(self) -> dict[type[Event], Handler]:
        return {AllocateBrokerId: self.on_allocate_broker_id}

    async def on_allocate_broker_id(self, event: AllocateBrokerId) -> int:
        """Returns the id of a name, or of a participant without one."""
        return await self._of_name(event.name) if event.name else self._of_unnamed(event)

    def in_use(self, brokers: Iterable[int]) -> None:
        """End the reservations of ids that have been registered."""
        for broker in brokers:
            self._reserved.pop(broker, None)

    async def _of_name(self, name: str) -> int:
        maintenance = self.cluster.maintenance
        known = maintenance.names.get(name)
        if known is not None:
            return known
        used, names = self._used(), dict(maintenance.names)
        if len(names) >= NAMES_MAX:
            unused = next((other for other, broker in names.items() if broker not in used), None)
            if unused is None:
                raise NoFreeId(f"{NAMES_MAX} names of participants are in use")
            log.warning("participant %s is forgotten: %d later names have ids", unused, NAMES_MAX)
            del names[unused]
        names[name] = _first_free(used.union(names.values()))
        await self.write_maintenance(msgspec.structs.replace(maintenance, names=names))
        log.info("participant %s has the broker id %d", name, names[name])
        return names[name]

    def _of_unnamed(self, event: AllocateBrokerId) -> int:
        present = self.cluster.brokers.get(event.broker)
        if (
            present is not None
            and present.id in GIVEN_IDS
            and present.incarnation.startswith(event.start)
            and not given_name(present.name)
        ):
            return event.broker
        self._end_reservations()
        for broker, reservation in self._reserved.items():
            if reservation.start == event.start:
                return broker
        used = self._used().union(self.cluster.maintenance.names.values())
        had = event.broker
        broker = had if had in GIVEN_IDS and had not in used else _first_free(used)
        self._reserved[broker] = _Reservation(event.start, self.clock.monotonic_ms() + RESERVED_MS)
        return broker

    def _end_reservations(self) -> None:
        now_ms = self.clock.monotonic_ms()
        ended = [broker for broker, reservation in self._reserved.items() if reservation.ends_ms <= now_ms]
        excess = list(self._reserved)[: max(0, len(self._reserved) - RESERVED_MAX + 1)]
        for broker in {*ended, *excess}:
            del self._reserved[broker]

    def _used(self) -> set[int]:
        """Returns the ids that are registered, reserved, drained, of controllers, or have replicas."""
        cluster = self.cluster
        return {
            *cluster.brokers,
            *self._reserved,
            *cluster.maintenance.drains,
            *self.settings.controller_ids,
            *cluster.table.replicas_within(GIVEN_IDS),
        }


def _first_free(used: set[int]) -> int:
    free = next((broker for broker in GIVEN_IDS if broker not in used), None)
    if free is None:
        raise NoFreeId(f"all broker ids from {GIVEN_IDS[0]} to {GIVEN_IDS[-1]} are in use")
    return free
