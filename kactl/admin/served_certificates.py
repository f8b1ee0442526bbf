"""Certificates that a process presents, and when they expire."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, Protocol

from kactl.runtime.logs import logger
from kactl.telemetry.health import CERTIFICATE_DAYS

log = logger(__name__)

LOOK_S: Final = 3600.0
DAY_S: Final = 24 * 3600.0


class Presented(Protocol):
    """A certificate in use.

    Attributes:
        cert: its file.
        expires_s: the end of its validity, in seconds since 1970; None if it is not known.
    """

    cert: str
    expires_s: float | None


class Expiry(NamedTuple):
    """The time for which a certificate is still valid; negative if it has expired."""

    interface: str
    path: str
    left_s: float

    def __str__(self) -> str:
        if self.left_s <= 0:
            return f"{self.interface}: {self.path} has expired"
        days = int(self.left_s / DAY_S)
        return (
            f"{self.interface}: {self.path} expires in {f'{days} days' if days > 1 else f'{self.left_s / 3600:.0f} h'}"
        )


class ServedCertificates:
    """The certificates of all interfaces of a process."""

    def __init__(self) -> None:
        self._presented: dict[str, Presented] = {}

    def add(self, interface: str, presented: Presented) -> None:
        """Include the certificate of an interface."""
        self._presented[interface] = presented

    def rows(self) -> list[tuple[float, Mapping[str, str | int]]]:
        """Returns the rows of the gauge: the end of validity, in seconds since 1970."""
        return [
            (presented.expires_s, {"interface": interface})
            for interface, presented in self._presented.items()
            if presented.expires_s is not None
        ]

    def expiries(self, now_s: float) -> tuple[Expiry, ...]:
        """Returns the remaining validity of each certificate."""
        return tuple(
            Expiry(interface, presented.cert, presented.expires_s - now_s)
            for interface, presented in self._presented.items()
            if presented.expires_s is not None
        )

    async def run(self, now_s: Callable[[], float], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Log each day which certificates expire soon, until cancelled. New ones are looked at each hour."""
        warned_s: dict[Expiry, float] = {}
        while True:
            present_s = now_s()
            for expiry in self.expiries(present_s):
                place = expiry._replace(left_s=0)
                if expiry.left_s > CERTIFICATE_DAYS * DAY_S:
                    warned_s.pop(place, None)
                elif present_s - warned_s.get(place, -DAY_S) >= DAY_S:
                    warned_s[place] = present_s
                    log.warning("the certificate of %s: replace the file, which is then loaded again", expiry)
            await sleep(LOOK_S)
