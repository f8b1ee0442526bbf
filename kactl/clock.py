"""Injected time sources, so that every run can be replayed.

Three clocks with different purposes:

wall clock   for timestamps of events. It may be set forward or back at any moment.
monotonic    for durations inside one process.
boot time    for leases: shared by all processes of the host, never set, and it advances while the host is suspended.

No lease, timeout or session may depend on the wall clock.
"""

import functools
import time
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import anyio

# A random id that the kernel draws at every boot; all containers of a host read the same one.
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# What the time namespace of this process adds to the host's clocks.
_TIME_OFFSETS: Final = Path("/proc/self/timens_offsets")
UNKNOWN_BOOT: Final = ""


class BootTime(NamedTuple):
    """A reading of the boot-time clock. Readings with different `boot` cannot be compared.

    Attributes:
        boot: the boot of the host that the reading belongs to; UNKNOWN_BOOT where the platform has no name for it.
        ms: since that boot, time in suspend included.
    """

    boot: str
    ms: int


class Clock(Protocol):
    """Source of time."""

    def now_ms(self) -> int:
        """Returns the wall clock, ms since 1970. It may jump: never use it for a lease or a timeout."""

    def monotonic_ms(self) -> float:
        """Returns a time that never goes back; only differences have a meaning."""

    def boot_time(self) -> BootTime:
        """Returns the clock for leases; it never goes back within one boot."""

    def lease_ns(self) -> int:
        """Returns the same clock with its full resolution, for leases that only this process reads; only differences
        have a meaning."""

    async def sleep_ms(self, delay_ms: float) -> None:
        """Wait for `delay_ms`; not at all if it is negative."""


class SystemClock:
    """The machine's clocks.

    Boot time is Linux's CLOCK_BOOTTIME with the offset of a time namespace taken out, so that containers which share a
    file agree. Elsewhere it is the system-wide monotonic clock, whose boot is unknown and which may stand still during
    suspend: leases then outlive a suspend by its length, and those of an earlier boot by at most their timeout.
    """

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000

    def boot_time(self) -> BootTime:
        boot, offset_ns = _boot()
        return BootTime(boot, (_boot_time_ns() - offset_ns) // 1_000_000)

    # `Leader.check` calls it for every protected step of an application.
    if hasattr(time, "CLOCK_BOOTTIME"):

        def lease_ns(self) -> int:
            return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    else:

        def lease_ns(self) -> int:
            return time.monotonic_ns()

    async def sleep_ms(self, delay_ms: float) -> None:
        # A time that has passed since the caller has read the clock.
        await anyio.sleep(max(delay_ms, 0.0) / 1000)


def _boot_time_ns() -> int:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.monotonic_ns()


@functools.cache
def _boot() -> tuple[str, int]:
    """Returns the id of this boot, and the offset of the time namespace in ns. Both are constant in a process."""
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        boot = UNKNOWN_BOOT
    try:
        offsets = _TIME_OFFSETS.read_text()
    except OSError:
        return boot, 0  # a kernel without time namespaces
    return boot, boot_offset_ns(offsets)


def boot_offset_ns(text: str) -> int:
    """Returns the offset of CLOCK_BOOTTIME in the text of `/proc/self/timens_offsets`; 0 if it is not listed.

    Source: time_namespaces(7). A line reads `boottime <seconds> <nanoseconds>`; seconds may be negative.
    """
    for line in text.splitlines():
        match line.split():
            case ["boottime", seconds, nanoseconds]:
                return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return 0
