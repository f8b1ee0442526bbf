"""Interfaces of a process that are insecure now: for the status, the gauge and the log."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from kactl.actors.system import Controller
from kactl.runtime.logs import logger

from .exposure import NETWORK, Opening
from .schema import InsecureInterface

log = logger(__name__)

REMINDER_S: Final = 24 * 3600.0


class ExposureReport:
    """What is insecure, and since when.

    Args:
        used: names of the interfaces that the configuration uses.
        openings: what is insecure by the configuration.
    """

    def __init__(self, used: Iterable[str], openings: Iterable[Opening], *, now_ms: Callable[[], int]) -> None:
        self._used = tuple(used)
        self._now_ms = now_ms
        self._openings: dict[tuple[str, str], Opening] = {}
        self._since_ms: dict[tuple[str, str], int] = {}
        for opening in openings:
            self._add(opening)

    def listed(self) -> tuple[InsecureInterface, ...]:
        """Returns what is insecure, one entry for each reason."""
        return tuple(
            InsecureInterface(interface=opening.interface, what=opening.what, since_ms=self._since_ms[key])
            for key, opening in self._openings.items()
        )

    def rows(self) -> list[tuple[float, Mapping[str, str | int]]]:
        """Returns the rows of the gauge: 1 for each interface that is insecure, 0 for the others."""
        insecure = {opening.interface for opening in self._openings.values()}
        return [(int(name in insecure), {"interface": name}) for name in dict.fromkeys((*self._used, *insecure))]

    def update(self, interface: str, key: str, reason: str) -> None:
        """Replace a reason that depends on the state of the cluster; an empty one removes it. A new one is logged."""
        place = (interface, key)
        if not reason:
            self._openings.pop(place, None)
            self._since_ms.pop(place, None)
            return
        is_new = place not in self._openings
        self._add(Opening(interface, key, reason, needs_consent=False))
        if is_new:
            _warn(self._openings[place])

    def update_network(self, controller: Controller) -> None:
        """Include the network of participants if it asks for no secret: it could make none."""
        self.update(NETWORK, "network.listen", getattr(controller.network, "insecure", ""))

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Log at the start and then each day what is insecure, until cancelled."""
        while True:
            for opening in tuple(self._openings.values()):
                _warn(opening)
            await sleep(REMINDER_S)

    def _add(self, opening: Opening) -> None:
        place = (opening.interface, opening.key)
        self._openings[place] = opening
        self._since_ms.setdefault(place, self._now_ms())


def _warn(opening: Opening) -> None:
    log.warning("%s is insecure: %s; see docs/security.md", opening.interface, opening.what)
